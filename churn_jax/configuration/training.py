"""How to train one method; lengths in epochs, checked when it is made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from churn_compare.suggestions import did_you_mean
from churn_jax.data.augment import Augmentation
from churn_jax.ensembles.mapping import MAPPINGS
from churn_jax.lazy import jax, jnp
from churn_jax.registry import Registry, is_own
from churn_jax.setting_checks import check_choice, check_fields, check_none, setting

if TYPE_CHECKING:
    from jax.typing import ArrayLike


SAMPLES = ("all", "bootstrap")
_FACTORS = ("init", "order", "augment", "sample")
_LEVELS = ("fixed", "varied")
# Network m of replica r has the seed number `r + NETWORK m`, so those of replicas are
# below NETWORK.
NETWORK = 2**16

_OPTAX = (
    "give an optax transformation, or a function that makes one, to "
    "churn_jax.study(optimizer=...), or name it by OPTIMIZERS.register"
)

_BUILT_IN = ("sgd", "adam", "adagrad")
_NUMBERS = (
    *("learning_rate", "weight_decay", "member_rates", "fast_rate", "step_factor"),
    *("warmup_epochs", "warmup_start", "step_epochs", "final_factor"),
    "adagrad_accumulator",
)
# Settings that some algorithms or some schedules alone read.
_OF_ALGORITHMS = {
    "momentum": ("sgd",),
    "nesterov": ("sgd",),
    "adagrad_accumulator": ("adagrad",),
    "decay": _BUILT_IN,
}
_OF_SCHEDULES = {
    "step_epochs": ("step",),
    "step_factor": ("step",),
    "flat_until": ("flat_then_linear",),
    "linear_until": ("flat_then_linear",),
    "final_factor": ("cosine", "flat_then_linear"),
}
_COURSE = ("schedule", "warmup_epochs", "warmup_start", *_OF_SCHEDULES)
# What a function that makes an optimiser takes in order to read a setting.
_TAKEN = {
    "learning_rate": "learning_rate",
    "weight_decay": "weight_decay",
    "decay_on": "mask",
    **dict.fromkeys(_COURSE, "learning_rate"),
}
OPTIMIZERS = Registry(
    "optimizer",
    {name: f"churn_jax.training.optim:{name}" for name in _BUILT_IN},
    lambda value: callable(value) or hasattr(value, "update"),
)
"""Optimisers by name: functions that make an optax transformation, or one as it is."""


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The optimiser of the weights. Lengths are in epochs, as papers give them.

    Attributes:
        name: `sgd`, `adam`, `adagrad`, or one of your own, such as `optax:lion`: a
            function, or an `optax.GradientTransformation`, as `package.module:name`,
            see `churn_jax.training.OPTIMIZERS`. Of your own, `momentum`, `nesterov`,
            `decay` and `adagrad_accumulator` are not read. A function is given those of
            `learning_rate` (peak times schedule, by the number of the update),
            `weight_decay`, `mask` (what decays, see `decay_on`), `total_steps` and
            `steps_per_epoch` that it names; a transformation has its own.
        learning_rate: its peak; a tuple gives one per replica.
        momentum: momentum of SGD; 0 is none.
        nesterov: Nesterov's form of momentum.
        weight_decay: factor of w in the update, see `decay`; `l2` is the gradient of
            the penalty `weight_decay / 2 |w|^2`; a penalty `c |w|^2`, as Keras writes
            it, is `weight_decay = 2 c`. A tuple gives one per replica.
        decay: `l2` adds `weight_decay * w` to the gradient; `decoupled` subtracts
            `learning_rate * weight_decay * w` from the weight (AdamW, SGDW).
        decay_on: `kernels` (leaves of rank two and more that are not biases or scales
            of several members) or `all`. Which one the papers used is not stated;
            kernels is ours. Fast weights (`fast_rate`) never decay.
        schedule: `constant`, `step`, `cosine` or `flat_then_linear`.
        warmup_epochs: linear warm-up to the peak.
        warmup_start: the warm-up's first factor (0.01 in the diversity paper).
        step_epochs: epochs at which `step` multiplies the rate by `step_factor`.
        step_factor: what `step` multiplies the rate by; 0.1 in the papers.
        flat_until: share of training after which `flat_then_linear` begins to fall.
        linear_until: share of training after which `flat_then_linear` has fallen to
            `final_factor`.
        final_factor: last factor of the rate in `flat_then_linear` and `cosine`.
        adagrad_accumulator: initial accumulator of AdaGrad.
        clip_norm: clip each network's gradient to this norm; None does not.
        member_rates: factors of the learning rate, one per network of a replica (a
            gate's networks included), in the order of its groups; 0 keeps a network as
            it starts. Empty is 1 for all.
        member_algorithms: `sgd`, `adam` or `adagrad` for each network, in the same
            order, in place of `name` (the anti-distillation paper: components may
            differ in their training algorithm). Empty is `name` for all.
        fast_rate: factor of the learning rate of fast weights, the leaves whose names
            start with `fast_` (BatchEnsemble; paper: 0.5).
    """

    name: str = "sgd"
    learning_rate: float | tuple[float, ...] = 0.1
    momentum: float = setting(0.9, of="share")
    nesterov: bool = True
    weight_decay: float | tuple[float, ...] = 1e-4
    decay: str = setting("l2", of=("l2", "decoupled"))
    decay_on: str = setting("kernels", of=("kernels", "all"))
    schedule: str = setting(
        "constant", of=("constant", "step", "cosine", "flat_then_linear")
    )
    warmup_epochs: float = 0.0
    warmup_start: float = 0.0
    step_epochs: tuple[float, ...] = ()
    step_factor: float = 0.1
    flat_until: float = 0.5
    linear_until: float = 0.9
    final_factor: float = 0.0
    adagrad_accumulator: float = 0.1
    clip_norm: float | None = None
    member_rates: tuple[float, ...] = ()
    member_algorithms: tuple[str, ...] = ()
    fast_rate: float = 1.0

    def __post_init__(self):
        """Checks names and ranges."""
        for field in ("step_epochs", "member_rates", "member_algorithms"):
            # Lists are taken, too.
            object.__setattr__(self, field, tuple(getattr(self, field)))
        if not isinstance(self.name, str):
            kind = type(self.name).__name__
            raise TypeError(f"optimizer name must be a name; got {kind}; {_OPTAX}")
        for field in ("learning_rate", "weight_decay"):
            if callable(getattr(self, field)):
                raise TypeError(
                    f"optimizer {field} must be a number, whose course over training "
                    f"is the setting schedule; got a function; {_OPTAX}"
                )
        if not is_own(self.name) and self.name not in OPTIMIZERS:
            raise ValueError(
                f"optimizer name must be one of {', '.join(OPTIMIZERS)}, or one of "
                f"your own as package.module:name; got {self.name!r}"
                f"{did_you_mean(self.name, OPTIMIZERS)}"
            )
        check_fields(self, "optimizer ")
        if not 0 <= self.flat_until < self.linear_until <= 1:
            raise ValueError(
                f"flat_until ({self.flat_until}) must be below linear_until "
                f"({self.linear_until}), both from 0 to 1"
            )
        if self.schedule == "step" and not self.step_epochs:
            raise ValueError("schedule step needs step_epochs")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm must be above 0; got {self.clip_norm}")
        for field in _NUMBERS:
            numbers = np.ravel(given := getattr(self, field))
            number, most = numbers.dtype.kind in "iuf", np.finfo(np.float32).max
            if not number or not np.all((numbers >= 0) & (numbers <= most)):
                rule = "must be finite in float32 and not negative"
                raise ValueError(f"{field} {rule}; got {given!r}")
        for name in self.member_algorithms:
            check_choice("member_algorithms", name, _BUILT_IN)

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The different algorithms of a replica's networks."""
        return tuple(dict.fromkeys(self.member_algorithms)) or (self.name,)

    def unread(self, field: str) -> str:
        """Why a setting has no effect; empty if it has one."""
        kinds, schedules = (of.get(field) for of in (_OF_ALGORITHMS, _OF_SCHEDULES))
        if kinds and not {*kinds} & {*self.algorithms}:
            return f"it is for {' and '.join(kinds)}; the optimizer is {self.name}"
        if not {*_BUILT_IN} & {*self.algorithms}:
            from churn_jax.ensembles.network import parameter_names

            own = OPTIMIZERS.find(self.name)
            taken = () if hasattr(own, "update") else parameter_names(own)
            # Built-in ones take the whole `config`.
            if field in _TAKEN and not {_TAKEN[field], "config"} & {*taken}:
                what = "it" if _TAKEN[field] == field else f"any {_TAKEN[field]}"
                return f"the optimizer is not given {what}; set it there"
        if schedules and self.schedule not in schedules:
            known = " and ".join(schedules)
            return f"it is for the schedule {known}; the schedule is {self.schedule}"
        return ""


def check_read(paths: Iterable[str], *optimizers: OptimizerConfig) -> None:
    """Refuses settings of an optimiser, by path, that none of these reads."""
    for path in paths:
        above, _, field = path.rpartition(".")
        if above.endswith("optimizer"):
            reasons = [optimizer.unread(field) for optimizer in optimizers]
            if all(reasons):
                raise ValueError(f"{field} is not read: {reasons[0]}")


@dataclasses.dataclass(frozen=True)
class Seeds:
    """The causes of churn under study; each is `fixed` or `varied` over replicas.

    Attributes:
        base: the study's seed.
        init: initial weights, `fixed` or `varied`.
        order: mini-batch order, `fixed` or `varied`.
        augment: augmentation, and with it dropout and every other draw during
            training: `fixed`, `varied`, or `off`, which removes augmentation (the
            paper's Table 1).
        sample: which training set is drawn, where the study draws one: `fixed` or
            `varied`.
        members: whether the networks of an ensemble see batches of their own
            (`independent`) or all the same (`shared`). Where nothing couples them
            (`Method.is_independent`), independent ones are trained as they would be
            alone: network m of replica r as the replica whose seed number is
            `r + 65536 m`. Of a fixed factor each has one draw, the same in all
            replicas. Methods that couple their members always share batches, and so
            do networks with `member_rates` or `member_algorithms` and the towers of a
            click stream.

    References:
        [reproducibility] Table 1 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
    """

    base: int = 0
    init: str = setting("varied", of=_LEVELS)
    order: str = setting("varied", of=_LEVELS)
    augment: str = setting("varied", of=(*_LEVELS, "off"))
    sample: str = setting("fixed", of=_LEVELS)
    members: str = setting("independent", of=("independent", "shared"))

    def __post_init__(self):
        """Checks the levels."""
        check_fields(self, "seeds.")

    def keys(self, factor: str, numbers: ArrayLike) -> jax.Array:
        """One typed key per seed number, `[R]`; equal ones where the factor is fixed.

        Replica r has number r, alone and among ten, and network m of an ensemble
        `r + 65536 m`. Networks share the `sample`, the replica's training set.
        """
        root = jax.random.fold_in(jax.random.key(self.base), _FACTORS.index(factor))
        numbers = jnp.asarray(numbers, jnp.uint32)
        replica, network = numbers % NETWORK, numbers // NETWORK
        if getattr(self, factor) != "varied":
            replica = jnp.zeros_like(replica)
        if factor == "sample":
            network = jnp.zeros_like(network)
        numbers = replica + NETWORK * network
        return jax.vmap(jax.random.fold_in, (None, 0))(root, numbers)


@dataclasses.dataclass(frozen=True)
class MeshShape:
    """Devices per mesh axis; `(1, 1, 1)` is one device.

    Attributes:
        replica: number of devices that share the replicas; they never communicate.
        member: number of devices that share the networks of each replica.
        data: number of devices that share each batch.
    """

    replica: int = setting(1, of=1)
    member: int = setting(1, of=1)
    data: int = setting(1, of=1)

    def __post_init__(self):
        """Checks that every axis is positive."""
        check_fields(self, "mesh ")

    @property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(dataclasses.astuple(self))

    @classmethod
    def parse(cls, text: str) -> "MeshShape":
        """From `replica=4,member=2` or `4,2,1`."""
        try:
            if "=" in text:
                pairs = [part.split("=") for part in text.split(",")]
                sizes = {k.strip(): int(v) for k, v in pairs}
                if len(sizes) < len(pairs):
                    raise ValueError("an axis is named twice")
                return cls(**sizes)
            return cls(*(int(v) for v in text.split(",")))
        except (TypeError, ValueError) as error:
            raise ValueError(
                "mesh must look like replica=4,member=2,data=1, with the axes replica, "
                f"member and data; got {text!r} ({error})"
            ) from error


@dataclasses.dataclass(frozen=True)
class OnePass:
    """One pass over clicks: every example is scored, then learned.

    Attributes:
        window: W, examples inside which replicas differ in order; a multiple of
            `batch_size`. Scores are compared window by window.
        warm_examples: the first examples, rounded up to whole windows, in which all
            replicas are replica number 0; only the scores after them count.
        warm_share: the same as a share of the examples, if that is more.
    """

    window: int = setting(8192, of=1)
    warm_examples: int = setting(0, of=0)
    warm_share: float = setting(0.0, of="share")

    def __post_init__(self):
        """Checks ranges."""
        check_fields(self)

    def warm_windows(self, examples: int) -> int:
        """Windows of the shared start of a stream of so many examples."""
        warm = max(self.warm_examples, int(self.warm_share * examples))
        return -(-warm // self.window)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Training of R replicas of one method.

    Attributes:
        replicas: R, independent repetitions.
        seed_numbers: seed numbers of the replicas, R of them; empty means 0 .. R-1.
            A grid repeats the same numbers at every point, so that points differ by
            their coefficients alone.
        epochs: passes over each replica's training set; what is left of an epoch
            after its last full batch is skipped, in a new order every epoch.
        batch_size: examples per update and replica, over all devices.
        eval_batch_size: rows per call in evaluation.
        eval_every_epochs: validation after every so many epochs, and at the end.
        optimizer: algorithm, learning rate and schedule.
        seeds: seeds that differ between replicas.
        augmentation: how training images are changed at random; not at all where
            `seeds.augment` is off.
        sample: each replica's training set: `all` or `bootstrap`.
        mesh: devices along replica, member and data.
        mapping: how the replicas of one device are computed: `vmap`, `unroll`, `loop`,
            or `auto`, which chooses by network and backend.
        steps_per_call: updates per dispatch; 0 chooses.
        weights: weights that are deployed, those of the `last` or of the `best`
            validation epoch.
        ema_decay: decay of an exponential moving average of weights and batch
            statistics, which is evaluated next to the weights; 0 keeps none.
        checkpoint_every_seconds: time between checkpoints; a killed run loses at most
            so much work.
        one_pass: settings of a click model, which learns in one pass; None for all
            other networks. The optimiser is then `adagrad`, or `sgd` without momentum,
            at a constant rate: what else there is would touch every row of every
            embedding table at every update. Weight decay is of the towers' kernels.
    """

    replicas: int = setting(10, of=1)
    seed_numbers: tuple[int, ...] = ()
    epochs: int = setting(10, of=1)
    batch_size: int = setting(128, of=1)
    eval_batch_size: int = setting(1000, of=1)
    eval_every_epochs: int = setting(1, of=1)
    optimizer: OptimizerConfig = OptimizerConfig()
    seeds: Seeds = Seeds()
    augmentation: Augmentation = Augmentation()
    sample: str = setting("all", of=SAMPLES)
    mesh: MeshShape = MeshShape()
    mapping: str = setting("auto", of=MAPPINGS)
    steps_per_call: int = setting(0, of=0)
    weights: str = setting("last", of=("last", "best"))
    ema_decay: float = setting(0.0, of="share")
    checkpoint_every_seconds: float = setting(60.0, of=0)
    one_pass: OnePass | None = None

    def __post_init__(self):
        """Checks what needs no data."""
        if not isinstance(self.optimizer, OptimizerConfig):
            raise TypeError(f"optimizer must be an OptimizerConfig; {_OPTAX}")
        check_fields(self)
        rates = self.optimizer.learning_rate, self.optimizer.weight_decay
        check_none(
            "",
            (
                any(np.shape(r) not in ((), (self.replicas,)) for r in rates),
                f"learning_rate and weight_decay must be one number or {self.replicas},"
                f" one per replica; got {rates[0]} and {rates[1]}",
            ),
            (
                self.seed_numbers and len(self.seed_numbers) != self.replicas,
                f"seed_numbers must be empty or {self.replicas} numbers, one per "
                f"replica; got {len(self.seed_numbers)}",
            ),
            (
                self.replicas % self.mesh.replica,
                f"{self.replicas} replicas cannot be sharded over a replica axis of "
                f"{self.mesh.replica} devices",
            ),
            (
                self.batch_size % self.mesh.data,
                f"batch_size {self.batch_size} is not divisible by the mesh's data "
                f"axis, {self.mesh.data}",
            ),
        )
        if (one_pass := self.one_pass) is None:
            return
        # Only what leaves rows of the tables that are not in the batch as they are.
        optimizer = self.optimizer
        plain = optimizer.name == "sgd" and optimizer.momentum == 0.0
        warm = one_pass.warm_examples or one_pass.warm_share
        check_none(
            "",
            (
                one_pass.window % self.batch_size,
                f"window {one_pass.window} is not a multiple of batch_size "
                f"{self.batch_size}",
            ),
            (
                warm and self.seeds.init == "varied",
                "warm_examples or warm_share make a warm start of one model, so "
                "seeds.init='varied' would change nothing; set seeds.init to 'fixed'",
            ),
            (
                self.augmentation != Augmentation(),
                "clicks are not changed at random; leave augmentation out",
            ),
            (
                optimizer.name != "adagrad" and not plain,
                "one pass is trained by adagrad, or by sgd with momentum 0, which "
                "leave rows that are not in the batch as they are; got "
                f"{optimizer.name} with momentum {optimizer.momentum}",
            ),
            (
                optimizer.member_algorithms,
                "a click model's components are trained by one algorithm; got "
                f"member_algorithms {', '.join(optimizer.member_algorithms)}",
            ),
            (
                optimizer.schedule != "constant" or optimizer.warmup_epochs,
                "one pass has no epochs, so its learning rate is constant; got "
                f"{optimizer.schedule} with warmup_epochs {optimizer.warmup_epochs}",
            ),
            (
                optimizer.clip_norm is not None,
                "gradients of one pass are not clipped; got clip_norm "
                f"{optimizer.clip_norm}",
            ),
            (
                self.mesh.member * self.mesh.data != 1,
                "a click model's mesh has the replica axis alone, over which replicas "
                f"and their tables are shared out; got {self.mesh}",
            ),
            (
                self.epochs != 1
                or self.sample != "all"
                or self.ema_decay
                or self.weights != "last",
                "one pass deploys the last weights after 1 epoch over all examples",
            ),
            (
                self.eval_every_epochs != 1,
                "a line of metrics is of the scores since the last one; got "
                f"eval_every_epochs {self.eval_every_epochs}, write 1",
            ),
        )

    @property
    def numbers(self) -> tuple[int, ...]:
        """The seed number of every replica."""
        return self.seed_numbers or tuple(range(self.replicas))
