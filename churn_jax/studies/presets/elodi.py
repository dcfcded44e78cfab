"""The fourth paper's rows, of one update, and its study on the embedded digits."""

import dataclasses
from typing import Any

from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec, Teaching
from churn_jax.configuration.study import DataConfig, StudyConfig, Update
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.data.augment import Augmentation
from churn_jax.methods.base import Method
from churn_jax.methods.bayesian_update import BayesianUpdate
from churn_jax.methods.elodi import ELODI
from churn_jax.methods.ensemble_distillation import EnsembleDistillation
from churn_jax.methods.erm import ERM
from churn_jax.methods.focal_distillation import FocalDistillation
from churn_jax.methods.updating import RACT, BackwardCompatible

UNTREATED = "[elodi] Sec. 5.1"  # the recipe that everything shares
COLUMNS = ("accuracy", "churn", "surrogate_churn", "nll", "ece", "parameters")

Rows = tuple[tuple[MethodSpec, ...], tuple[Update, ...]]


@dataclasses.dataclass(frozen=True)
class Setting:
    """The networks of an update, and the methods' constants."""

    old: ModelConfig
    new: ModelConfig
    members: int = 8  # m, networks of a reference ensemble
    top_k: int = 10  # K of the top-K form
    alpha: float = 0.8  # of ELODI
    temperature: float = 100.0  # of KD and FD-KL, as in the public code
    distill: float = 0.9  # alpha of KD and FD, as in the public code
    dropout: float = 0.2
    # What new rows train with instead of the study's configuration: other seeds than
    # the old ones', so that equal networks are not trained twice.
    of_new: tuple[tuple[str, Any], ...] = (("seeds.base", 1),)
    of_matching: tuple[tuple[str, Any], ...] = ()  # the same for rows that match logits

    def row(self, name: str, label: str, method: Method, **fields: Any) -> MethodSpec:
        """A row of the new network."""
        matches = isinstance(method, ELODI) or (
            isinstance(method, FocalDistillation) and method.divergence == "logits"
        )  # gradients of matched logits grow with them
        own: dict[str, Any] = {
            "model": self.new,
            "train": (*self.of_new, *(self.of_matching if matches else ())),
            "equation": UNTREATED,
        }
        return MethodSpec(name, label, method, **(own | fields))

    def old_row(self, name: str, label: str, method: Method, **fields: Any):
        """A row of the old network."""
        old = dataclasses.replace(self, new=self.old, of_new=())
        return old.row(name, label, method, **fields)

    def ensemble(self) -> ERM:
        """Members trained independently, their logits averaged."""
        return ERM(members=self.members, deploy="mean_logits")

    def elodi(self, **fields: Any) -> ELODI:
        """With the setting's alpha; `fields` as of the method."""
        own: dict[str, Any] = {"alpha": self.alpha, "top_k": 0}
        return ELODI(**(own | fields))

    def kd(self, **fields: Any) -> EnsembleDistillation:
        """Plain distillation."""
        own: dict[str, Any] = {"alpha": self.distill, "temperature": self.temperature}
        return EnsembleDistillation(**(own | fields))

    def fd(self, **fields: Any) -> FocalDistillation:
        """Focal distillation."""
        own: dict[str, Any] = {"alpha": self.distill, "temperature": self.temperature}
        return FocalDistillation(**(own | fields))

    @property
    def top(self) -> str:
        """Name of the top-K row."""
        return f"elodi_top{self.top_k}"


def joined(*parts: Rows) -> Rows:
    """Rows and updates of several parts; rows that several have are taken once."""
    rows: dict[str, MethodSpec] = {}
    for specs, _ in parts:
        for spec in specs:
            if rows.setdefault(spec.name, spec) != spec:
                raise ValueError(f"two rows are called {spec.name}")
    updates = dict.fromkeys(update for _, part in parts for update in part)
    return tuple(rows.values()), tuple(updates)


def pair(s: Setting) -> Rows:
    """Both networks without treatment, and their ensembles."""
    rows = (
        s.old_row("old", "Old, no treatment", ERM()),
        s.row("none", "No treatment", ERM()),
        s.old_row(
            "old_ensemble", f"Old, ensemble of {s.members}", s.ensemble(), equation=_I
        ),
        s.row("ensemble", f"Ensemble paragon, {s.members}x", s.ensemble(), equation=_I),
    )
    updates = (
        Update("old", "none", "No treatment (single)"),
        Update("old_ensemble", "ensemble", f"Ensemble paragon ({s.members}x)"),
    )
    return rows, updates


_I = "[elodi] Eq. 2"
_LDI, _TOP = "[elodi] Eq. 7", "[elodi] Eq. 8"
_TABLE1 = "[elodi] Table 1"


def guided(
    s: Setting,
    name: str,
    label: str,
    method: Method,
    guides: tuple[str, str] = ("old_ensemble", "ensemble"),
    **fields: Any,
) -> Rows:
    """Both networks by one method, each from the guide of its own strength."""
    old, new = (fields | {"teacher": guide} for guide in guides)
    rows = (
        s.old_row(f"old_{name}", f"Old, {label}", method, **old),
        s.row(name, label, method, **new),
    )
    return rows, (Update(f"old_{name}", name, label),)


def elodi_pair(s: Setting, name: str, label: str, method: ELODI, **fields) -> Rows:
    """Both networks by ELODI, each from the ensemble of its own kind."""
    return guided(s, name, label, method, equation=equation_of(method), **fields)


def equation_of(method: ELODI) -> str:
    """Where its distance is in the paper: of all classes, or of the K highest."""
    return _TOP if method.top_k else _LDI


def main_rows(s: Setting) -> Rows:
    """Table 1: no treatment, the paragon, methods that aim at the old model, ELODI.

    Churn distillation (Jiang et al., 2022) is added to them.
    """
    old_dropout, dropout = (
        dataclasses.replace(model, dropout=s.dropout) for model in (s.old, s.new)
    )
    share = f"{s.dropout:g}"
    rows = [
        s.old_row("old_dropout", f"Old, dropout {share}", ERM(), model=old_dropout),
        s.row("dropout", f"Dropout {share}", ERM(), model=dropout, equation=_TABLE1),
    ]
    updates = [Update("old_dropout", "dropout", f"Dropout {share}")]
    taught: dict[str, Any] = {"teacher": "old"}
    aimed: dict[str, Any] = {"teaching": Teaching(old=("old",))}
    for name, label, method, fields in (
        ("bct", "BCT", BackwardCompatible(), aimed),
        ("ract", "RACT", RACT(), aimed),
        ("kd", "KD", s.kd(), taught),
        ("fd_kl", "FD-KL", s.fd(), aimed),
        ("fd_lm", "FD-LM", s.fd(divergence="logits"), aimed),
        ("bu_cr", "BU-CR", BayesianUpdate(), aimed),
    ):
        rows.append(s.row(name, label, method, **({"equation": _TABLE1} | fields)))
        updates.append(Update("old", name, label, targeted=True))
    aims = (tuple(rows), tuple(updates))
    return joined(pair(s), aims, churn_distillation_rows(s), elodi_rows(s))


def churn_distillation_rows(s: Setting) -> Rows:
    """The new network distilled from the old one in use (Jiang et al., 2022)."""
    row = s.row(
        "churn_kd",
        "Churn distillation",
        EnsembleDistillation(alpha=0.5, temperature=1.0),
        teacher="old",
        equation="[churn-distillation] Eq. 3",
    )
    return (row,), (Update("old", row.name, row.label, targeted=True),)


def elodi_rows(s: Setting) -> Rows:
    """Both networks by ELODI, on all classes and on the K most likely ones."""
    return joined(elodi_pair(s, "elodi", "ELODI, all classes", s.elodi()), best_rows(s))


def best_rows(s: Setting) -> Rows:
    """Both networks by ELODI on the K most likely classes."""
    return elodi_pair(s, s.top, f"ELODI, K = {s.top_k}", s.elodi(top_k=s.top_k))


def cpu_study(
    name: str,
    title: str,
    rows: Rows,
    *,
    data: DataConfig,
    model: ModelConfig,
    epochs: int = 24,
    replicas: int = 5,
    baseline: str = "none",
    augmentation: Augmentation = Augmentation(),
) -> StudyConfig:
    """Updates of small networks; the recipe is ours.

    Adam and not SGD: in networks without batch norm squared differences of logits
    diverge with momentum at a tenth of the rate that cross-entropy takes. No weight
    decay: as a term of the gradient, which Adam rescales, it pulls weights in use
    hardly and all others to zero.
    """
    methods, updates = rows
    return StudyConfig(
        name=name,
        title=title,
        data=data,
        model=model,
        train=TrainConfig(
            replicas=replicas,
            epochs=epochs,
            batch_size=128,
            eval_every_epochs=epochs,
            optimizer=OptimizerConfig(
                name="adam", learning_rate=2e-3, weight_decay=0.0, schedule="cosine"
            ),
            augmentation=augmentation,
        ),
        methods=methods,
        baseline=baseline,
        columns=COLUMNS,
        updates=updates,
    )


def elodi_digits() -> StudyConfig:
    """The embedded digits: every method of Table 1 in a minute."""
    old, new = ModelConfig("mlp", features=(16,)), ModelConfig("mlp")
    rows = main_rows(Setting(old=old, new=new, members=4, top_k=3))
    title = "A model update on the digits"
    return cpu_study("elodi-digits", title, rows, data=DataConfig(), model=new)
