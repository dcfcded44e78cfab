"""Picks the coefficients of the `digits` preset on its validation split.

    python experiments/reproducibility/select_digits.py

Every grid point has the same ten seeds; a whole grid is one compiled program, because
a coefficient is a leaf of the method and a grid is just more replicas. The rule is the
paper's (Appendix A): the value with the smallest churn, here on the validation split;
the combined method takes the best beta of Co-distill SKL first and then picks alpha.
The test split is not read. About three minutes on two cores.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from churn_jax import data, metrics
from churn_jax.data import channel_statistics
from churn_jax.studies import StudyConfig, preset
from churn_jax.training.loop import train
from churn_jax.training.run import Run, Trained

ALPHAS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
SKL_ALPHAS = (0.005, 0.01, 0.02, 0.05)
BETAS = (0.1, 0.3, 0.6, 1.0, 2.0)
CE_BETAS = (0.1, 0.3, 1.0, 2.0, 4.0)
TEMPERATURES = (1.0, 2.0, 3.0, 4.0)


class Selection:
    """The preset's data and training, for grids of one method at a time."""

    def __init__(self, config: StudyConfig):
        self.config = config
        self.dataset = data.load(
            config.data.name,
            train_size=config.data.train_size,
            validation=config.data.validation,
        )
        moments = channel_statistics(self.dataset.train.images)
        self.mean = tuple(float(x) for x in moments.mean)
        self.std = tuple(float(x) for x in moments.std)

    def train(self, name: str, grid: dict[str, Sequence[float]], **fixed) -> Trained:
        """Trains every grid point with the preset's seeds, all in one program."""
        spec = self.config.spec(name)
        (values,) = grid.values() if grid else ((0.0,),)
        seeds = self.config.train.replicas
        columns = {k: np.repeat(np.float32(v), seeds) for k, v in grid.items()}
        settings = dataclasses.replace(
            self.config.train,
            replicas=len(values) * seeds,
            seed_numbers=tuple(range(seeds)) * len(values),
            eval_every_epochs=self.config.train.epochs,
        )
        teacher = fixed.pop("teacher", None)
        run = Run(
            name=name,
            method=spec.method.replace(**fixed, **columns),
            groups=spec.groups(self.config.model, self.dataset.num_classes),
            config=settings,
            stream=0 if teacher is None else 1,
        )
        return train(run, self.dataset, teacher=teacher, mean=self.mean, std=self.std)

    def scores(self, trained: Trained) -> list[tuple[float, float]]:
        """Validation accuracy and churn, in percent, of every grid point."""
        logits = trained.predict(self.dataset.validation.images)
        seeds = self.config.train.replicas
        points = logits.reshape(-1, seeds, *logits.shape[1:])
        labels = self.dataset.validation.labels
        return [
            (
                100 * float(np.mean(np.argmax(runs, -1) == labels)),
                100
                * float(
                    metrics.summarize_pairs(metrics.pairwise(metrics.churn, runs)).mean
                ),
            )
            for runs in points
        ]

    def pick(self, name: str, field: str, values: Sequence[float], **fixed) -> float:
        """Prints the grid and returns the value with the smallest churn."""
        scores = self.scores(self.train(name, {field: values}, **fixed))
        return report(name, field, values, scores)


def report(name: str, field: str, values, scores) -> float:
    """One table row per value; the one with the smallest churn is marked."""
    best = int(np.argmin([churn for _, churn in scores]))
    for i, (value, (accuracy, churn)) in enumerate(zip(values, scores)):
        coefficient = f"{field} = {value:g}" + (" (picked)" if i == best else "")
        print(f"| {name} | {coefficient} | {accuracy:.2f} | {churn:.2f} |", flush=True)
    return values[best]


def main() -> None:
    selection = Selection(preset("digits"))
    print("| method | coefficient | validation accuracy % | validation churn % |")
    print("|---|---|---|---|")
    baseline = selection.train("baseline", {})
    ((accuracy, churn),) = selection.scores(baseline)
    print(f"| baseline | - | {accuracy:.2f} | {churn:.2f} |", flush=True)
    selection.pick("entropy", "alpha", ALPHAS)
    selection.pick("uniform_skl", "alpha", SKL_ALPHAS)
    selection.pick("codistill_ce", "beta", CE_BETAS)
    beta = selection.pick("codistill_skl", "beta", BETAS)
    selection.pick("codistill_skl_entropy", "alpha", ALPHAS, beta=beta)
    ensemble = selection.train("ensemble", {})
    ((accuracy, churn),) = selection.scores(ensemble)
    print(f"| ensemble | - | {accuracy:.2f} | {churn:.2f} |", flush=True)
    # Replica r learns from teacher r, so a grid of students would need as many
    # teachers: one temperature at a time against the same ten.
    scores = [
        selection.scores(
            selection.train(
                "distillation", {}, teacher=ensemble, temperature=temperature
            )
        )[0]
        for temperature in TEMPERATURES
    ]
    report("distillation", "temperature", TEMPERATURES, scores)


if __name__ == "__main__":
    main()
