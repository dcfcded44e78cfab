"""Weights between versions: BCWI, Fisher-weighted BCWI, and soups of new runs.

python experiments/cheapest/weights.py runs/cheapest-soup-fashion out.csv

All runs of the study start from the same old network. Soups are of the first runs, the
next ones, and so on; Fisher information is that of `EXAMPLES` training images. Negative
flips and errors on the test split, and on the validation split for the choice.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_compare.array_files import write_file
from churn_compare.documents import Records, csv_text
from churn_jax.data.augment import normalize
from churn_jax.ensembles import average_weights, diagonal_fisher, interpolate_weights
from churn_jax.reports.estimates import over_runs
from churn_jax.studies.study import FinishedStudy
from churn_jax.training import Trained

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)  # of the old weights
SOUPS = (2, 5)  # runs
EXAMPLES = 2000


def mixtures(
    study: FinishedStudy, old: Trained, new: Trained
) -> dict[str, tuple[Any, np.ndarray]]:
    """Weights `[R', ...]` and the old run of each, by name."""
    (group,) = new.run.groups
    own = study.inputs.of(study.spec("tuned"))
    images = own.dataset.train.images[:EXAMPLES]
    inputs = normalize(images, np.float32(own.mean), np.float32(own.std))

    def logits(params, x):
        return group.network.apply({"params": params}, x, train=False)[0].logits

    def runs(trained):  # [R, 1, ...] of one group of one network
        params = jax.device_get(trained.params[0])
        count = len(jax.tree.leaves(params)[0])
        return [
            jax.tree.map(lambda leaf, r=r: leaf[r, 0], params) for r in range(count)
        ]

    before, after = runs(old), runs(new)
    fisher = jax.jit(diagonal_fisher, static_argnums=0)
    known, learnt = ([fisher(logits, p, inputs) for p in of] for of in (before, after))
    every = np.arange(len(after))
    made: dict[str, tuple[list[Any], np.ndarray]] = {"tuned": (after, every)}

    def weighed(tree, share):
        return jax.tree.map(lambda leaf: share * leaf, tree)

    for share in SHARES:
        plain = [interpolate_weights(n, o, share) for n, o in zip(after, before)]
        by_fisher = [
            average_weights([o, n], [weighed(f, share), weighed(g, 1 - share)])
            for o, n, f, g in zip(before, after, known, learnt)
        ]
        made[f"bcwi_{share:g}"] = plain, every
        made[f"fisher_{share:g}"] = by_fisher, every
    for size in SOUPS:
        firsts = every[: len(every) // size * size : size]
        soups = [average_weights(after[i : i + size]) for i in firsts]
        made[f"soup_{size}"] = (soups, firsts)
        middle = [interpolate_weights(s, before[i], 0.5) for s, i in zip(soups, firsts)]
        made[f"soup_{size}_bcwi_0.5"] = (middle, firsts)
    return {
        name: (jax.tree.map(lambda *x: np.stack(x)[:, None], *of), rows)
        for name, (of, rows) in made.items()
    }


def lines(study: FinishedStudy) -> list[dict[str, Any]]:
    """Negative flips and errors of every mixture, means over runs, and their errors."""
    old, new = (study.restore(study.spec(name)) for name in ("old", "tuned"))
    found = []
    splits = {"": study.dataset.test, "validation_": study.dataset.validation}
    before = {
        k: old.predict(s.images).argmax(-1) == s.labels for k, s in splits.items()
    }
    for name, (weights, rows) in mixtures(study, old, new).items():
        # As many as there were runs, so that the program is the same.
        every = np.resize(np.arange(len(rows)), new.run.config.replicas)
        padded = jax.tree.map(lambda leaf, r=every: leaf[r], weights)
        mixed = dataclasses.replace(new, params=(padded,))
        line: dict[str, Any] = {"row": name, "runs": len(rows)}
        for kind, split in splits.items():
            right = mixed.predict(split.images).argmax(-1) == split.labels
            right = right[: len(rows)]
            flips = np.mean(before[kind][rows] & ~right, axis=-1)
            for of, values in (("nfr", flips), ("error", 1 - right.mean(-1))):
                mean = over_runs(values)
                line |= {kind + of: mean.mean, f"{kind}{of}_stderr": mean.stderr}
        found.append(line)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of the study soup_fashion or _news")
    parser.add_argument("out", type=Path, help="the CSV")
    options = parser.parse_args()
    found = lines(FinishedStudy(options.folder))
    write_file(options.out, csv_text(Records(list(found[0]), found)))


if __name__ == "__main__":
    main()
