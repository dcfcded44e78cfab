"""Updates of three classifiers, as shipped and as served with the old version.

python experiments/compare/repair.py digits fashion_mnist.npz ag_news_tokens.npz

The old version learns from half of the training examples, the new one from all. Rules
are chosen on a random half of the test split and judged on the other.
"""

import argparse

import numpy as np
from scipy import sparse
from sklearn.linear_model import SGDClassifier
from sklearn.neural_network import MLPClassifier

import churn_compare
from churn_jax import data

TOKENS, EXAMPLES = 8192, 20_000


def images(name):
    """Inputs and labels of both splits."""
    found = data.load(name, validation=0)
    splits = found.train, found.test
    return [(of.images.reshape(len(of), -1) / 255, of.labels) for of in splits]


def texts(path):
    """The same of an archive of token ids, as bags of hashed tokens."""
    arrays, found = np.load(path), []
    for split in ("train", "test"):
        tokens, offsets = arrays[f"{split}_tokens"], arrays[f"{split}_offsets"]
        labels = arrays[f"{split}_label"]
        offsets = np.r_[offsets, len(tokens)][: len(labels) + 1].astype(np.int64)
        columns = tokens[: offsets[-1]] % TOKENS
        shape = len(labels), TOKENS
        ones = np.ones(len(columns), np.float32)
        found.append((sparse.csr_matrix((ones, columns, offsets), shape), labels))
    return found


def versions(name):
    """Log-probabilities of the old and the new version on the test split."""
    if "token" in name:
        splits = texts(name)
        model = lambda s: SGDClassifier("log_loss", alpha=1e-5, random_state=s)  # noqa: E731
    else:
        splits, digits = images(name), name == "digits"
        size, most = (32, 200) if digits else (128, 15)
        model = lambda s: MLPClassifier((size,), max_iter=most, random_state=s)  # noqa: E731
    (x, y), (x_test, y_test) = splits
    some = np.random.default_rng(0).permutation(x.shape[0])[:EXAMPLES]
    probs = [
        model(seed).fit(x[of], y[of]).predict_proba(x_test)
        for seed, of in enumerate((some[: len(some) // 2], some))
    ]
    return [np.log(np.maximum(p, 1e-30)) for p in probs], y_test


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", help="digits, or .npz of images or tokens")
    for name in parser.parse_args().data:
        sides, labels = versions(name)
        ids = np.random.default_rng(1).permutation(len(labels))
        splits = [
            [{"id": of, "label": labels[of], "logits": z[of]} for z in sides]
            for of in np.array_split(ids, 2)
        ]
        print(name, churn_compare.repair(*splits[1], validation=splits[0]), sep="\n")


if __name__ == "__main__":
    main()
