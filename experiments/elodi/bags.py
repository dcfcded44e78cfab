"""Texts as bags of hashed tokens, for dense networks: one `.npz` from another.

python -m experiments.elodi.bags ag_news_tokens.npz ag_news_bags.npz

A token is counted at its id modulo 2,048; counts are stored as uint8 images of one
channel, which are standardised by one mean and one deviation.
"""

import argparse

import numpy as np

SHAPE = (32, 64, 1)


def bags(tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Counts `[N, *SHAPE]` of the texts `tokens[offsets[i]:offsets[i + 1]]`."""
    columns = int(np.prod(SHAPE))
    counts = np.zeros((len(offsets) - 1, columns), np.uint8)  # of texts below 256 words
    texts = np.repeat(np.arange(len(counts)), np.diff(offsets))
    np.add.at(counts, (texts, tokens[: offsets[-1]] % columns), 1)
    return counts.reshape(-1, *SHAPE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tokens", help="an .npz of token ids")
    parser.add_argument("out", help="the .npz to write")
    options = parser.parse_args()
    arrays = np.load(options.tokens)
    found = {}
    for split in ("train", "test"):
        tokens, offsets = arrays[f"{split}_tokens"], arrays[f"{split}_offsets"]
        found[f"{split}_image"] = bags(tokens, offsets.astype(np.int64))
        found[f"{split}_label"] = arrays[f"{split}_label"]
    np.savez(options.out, **found)


if __name__ == "__main__":
    main()
