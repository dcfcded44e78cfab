"""The cost of a study, in floating-point operations, before it is trained."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from churn_jax import losses
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.ensembles import Group
from churn_jax.studies.inputs import StudyInputs, row_run
from churn_jax.training.examples import check_run, split_example


@dataclasses.dataclass(frozen=True)
class RowCost:
    """The cost of training one row; each network sees `examples`, repeats counted."""

    name: str
    replicas: int
    networks: int
    updates: int
    examples: int
    flops: float


@functools.lru_cache(maxsize=256)  # rows of a study share their networks
def network_flops(network, example: jax.ShapeDtypeStruct, of: str = "forward") -> float:
    """Operations of one network and one example; multiplications and additions count.

    XLA counts them; nothing is compiled or run. `of` is a field of `methods.Passes`:
    `forward`, `training`, which includes the gradient of the cross-entropy, or
    `input_gradients`, a forward pass and the gradient in the input alone.
    """
    batch = 64  # work done once per batch is spread over this many examples
    images = jax.ShapeDtypeStruct((batch, *example.shape[1:]), example.dtype)
    key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype)
    variables = jax.eval_shape(network.init, key, images)
    labels = jax.ShapeDtypeStruct((batch,), jnp.int32)

    def loss(params, rest, key, images, labels):
        given = {**rest, "params": params}
        # Without an axis name, batch norm is over this batch.
        outputs, state = network.apply(given, images, train=True, key=key)
        # A gate's output has no labels; its mean stands for what trains it.
        logits = outputs.logits
        if logits.shape[-1] < 2:
            return jnp.mean(logits), state
        each = losses.cross_entropy(logits, jnp.broadcast_to(labels, logits.shape[:-1]))
        return jnp.mean(each), state

    def predict(params, rest, key, images, labels):
        del key, labels
        return network.apply({**rest, "params": params}, images, train=False)[0]

    def climb(params, rest, key, images, labels):
        def probs(images):
            outputs = predict(params, rest, key, images, labels)
            return jnp.sum(jax.nn.softmax(outputs.logits)[..., 0])

        return jax.value_and_grad(probs)(images)

    rest = {k: v for k, v in variables.items() if k != "params"}
    wanted = {
        "training": jax.value_and_grad(loss, has_aux=True),
        "forward": predict,
        "input_gradients": climb,
    }[of]
    lowered = jax.jit(wanted).lower(variables["params"], rest, key, images, labels)
    analysis = lowered.cost_analysis() or {}
    if "flops" not in analysis:
        raise ValueError(
            f"XLA counts no operations on {jax.default_backend()}; set "
            "JAX_PLATFORMS=cpu to count them"
        )
    return float(analysis["flops"]) / batch


def study_costs(config: StudyConfig, only: tuple[str, ...] = ()) -> tuple[RowCost, ...]:
    """The cost of training each row; the data are opened, nothing is trained.

    `R x updates x batch x (operations of all passes)`, where `Method.passes` says how
    often an update trains, applies and differentiates all students, all teachers and
    one drawn teacher; of several kinds, or of those that share weights, all teachers
    are computed. Penalties, the optimiser, augmentation and evaluation are not counted:
    for networks of some size they are small. LeNet5 on CPU is counted as the dense
    products that it is computed with there, several times its convolutions.
    """
    costs, inputs = [], StudyInputs(config)
    for spec in config.select(only):
        dataset, train = inputs.of(spec).dataset, spec.config(config.train)
        run = row_run(config, spec, dataset.num_classes)
        check_run(run, dataset)
        example = split_example(dataset.train)
        updates = run.steps_per_epoch(len(dataset.train)) * train.epochs
        seen = updates * train.batch_size
        flops = _example_flops(config, spec, example, dataset.num_classes)
        networks = sum(group.size for group in run.groups)
        total = train.replicas * seen * flops
        costs.append(RowCost(spec.name, train.replicas, networks, updates, seen, total))
    return tuple(costs)


def _example_flops(
    config: StudyConfig, spec: MethodSpec, example: jax.ShapeDtypeStruct, classes: int
) -> float:
    """Operations of all passes over one example in one update."""

    def per_example(groups: tuple[Group, ...], of: str) -> float:
        return sum(g.size * network_flops(g.network, example, of) for g in groups)

    groups, passes = spec.groups(config.model, classes), spec.method.passes
    flops = 0.0
    for of in ("training", "forward", "input_gradients"):
        if times := getattr(passes, of):
            flops += times * per_example(groups, of)
    if spec.teacher is not None:
        taught = config.spec(spec.teacher)
        teachers = taught.groups(config.model, classes)
        if size := spec.teaching.members:
            teachers = (Group(teachers[0].network, size),)
        epochs = spec.config(config.train).epochs
        once = 1 / epochs if spec.teaching.offline else 1.0
        flops += once * passes.teachers * per_example(teachers, "forward")
        # One of them, or all: see `Teacher`.
        alike = len(teachers) == 1 and teachers[0].network.heads == 1
        drawn = passes.drawn_teacher / (teachers[0].size if alike else 1)
        if times := drawn + passes.teachers_input_gradients:
            flops += times * per_example(teachers, "input_gradients")
    for name in spec.teaching.old:
        old = config.spec(name).groups(config.model, classes)
        flops += passes.teachers * per_example(old, "forward")
    return flops
