"""The inputs of networks from a data set, and a check that their outputs fit."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from churn_jax._jax import varying_axes
from churn_jax.configuration.training import OPTIMIZERS
from churn_jax.data.records import StreamedSplit
from churn_jax.data.splits import check_layout, first_line, is_tokens
from churn_jax.ensembles import Group, Network, NetworkError
from churn_jax.ensembles.mapping import convolved_rows
from churn_jax.training.partition import DATA

if TYPE_CHECKING:
    from churn_jax.training.run import Run


def example_of(image_shape: tuple[int, ...], *, tokens: bool) -> jax.ShapeDtypeStruct:
    """One example as networks meet it, `[1, ...]`: int32 ids, else float32."""
    dtype = jnp.int32 if tokens else jnp.float32
    return jax.ShapeDtypeStruct((1, *image_shape), dtype)


def split_example(split) -> jax.ShapeDtypeStruct:
    """`example_of` for a split in memory or a streamed one."""
    if isinstance(split, StreamedSplit):
        return example_of(split.image_shape, tokens=False)
    return example_of(split.images.shape[1:], tokens=is_tokens(split.images))


def check_run(run: Run, dataset) -> None:
    """Refuses a run that does not fit its data, before anything is compiled."""
    OPTIMIZERS.find(run.config.optimizer.name)  # of your own, it may not be there
    train = dataset.train
    for name in ("train", "validation"):
        labels = np.asarray(getattr(dataset, name).labels)
        if not len(labels):
            raise ValueError(f"{run.name}: there are no {name} examples; hold some out")
        if not 0 <= labels.min() <= labels.max() < dataset.num_classes:
            raise ValueError(
                f"{run.name}: {name} labels must lie in 0..{dataset.num_classes - 1}; "
                f"got {labels.min()} to {labels.max()}"
            )
    stored = train.source if isinstance(train, StreamedSplit) else train
    if hasattr(stored, "images"):  # files have none
        check_layout(run.name, stored.images)
        run.method.check_inputs(stored.images)
    example = split_example(train)
    for group in run.groups:
        _check_network(run, group, example, dataset.num_classes)
    if is_tokens(example):
        splits = (dataset.train, dataset.validation, dataset.test)
        ids = [split.images for split in splits if len(split)]
        if (least := min(map(np.min, ids))) < 0:
            raise ValueError(f"{run.name}: token ids must not be negative; got {least}")
        _check_tokens(run, example, max(map(np.max, ids)))


def check_start(run: Run, start: Run, example: Any, replicas: int) -> None:
    """Refuses weights of other networks before hours are spent on training them."""

    def form(run: Run):
        return [
            (g.size, g.gate, jax.eval_shape(g.network.init, jax.random.key(0), example))
            for g in run.groups
        ]

    if form(run) != form(start) or run.config.replicas != replicas:
        raise ValueError(
            f"{run.name} cannot start from the weights of {start.name}: their "
            "networks, members or replicas differ"
        )


def check_teacher_classes(
    student: Run, teacher: Run, example: jax.ShapeDtypeStruct, classes: int
) -> None:
    """Refuses a teacher or an old model whose logits are not of the data's classes."""
    for network in (group.network for group in teacher.groups):
        if (known := _traced(network, example, shards=1)[0][-1]) != classes:
            raise ValueError(
                f"{student.name}: its teacher {network.name} returns {known} logits, "
                f"not {classes}; wrap it in "
                "churn_jax.ensembles.with_classes, which names its classes"
            )


def _check_tokens(run: Run, example: jax.ShapeDtypeStruct, largest: int) -> None:
    config = run.config
    if not config.augmentation.is_off and config.seeds.augment != "off":
        raise ValueError(
            f"{run.name}: token ids are not cropped, shifted, flipped or dropped; got "
            f"{config.augmentation}"
        )
    for network in (group.network for group in run.groups):
        variables = jax.eval_shape(network.init, jax.random.key(0), example)
        for name in network.input_params:
            table = variables["params"].get(name, {})
            known = table.get("embedding") if isinstance(table, dict) else None
            if known is not None and known.shape[0] <= largest:
                raise ValueError(
                    f"{run.name}: token ids go up to {largest}, but {network.name} has "
                    f"{known.shape[0]} embeddings; set data.vocabulary_size="
                    f"{known.shape[0]} or widen the network"
                )


def _check_network(
    run: Run, group: Group, example: jax.ShapeDtypeStruct, classes: int
) -> None:
    network, where = group.network, f"{run.name}: {group.network.name}"
    try:
        shape, local = _traced(network, example, run.config.mesh.data)
    except NetworkError as error:
        raise ValueError(f"{run.name}: {error}") from error
    except Exception as error:  # whatever a network's own code raises
        kind = "token ids" if is_tokens(example) else "examples"
        raise ValueError(
            f"{where} cannot be applied to {kind} {[*example.shape[1:]]} "
            f"({first_line(error).rstrip('.')}); networks are given [B, H, W, C], "
            "[B, D] or token ids [B, L]"
        ) from error
    if local:
        raise ValueError(
            f"{where} keeps {local[0]} from the examples of one device, of "
            f"{run.config.mesh.data} that share a batch; average it over axis_name "
            "(flax's BatchNorm does), or train with data=1 in the mesh"
        )
    if group.gate:
        return
    rows = _ROWS * network.heads
    if shape[-2:-1] != (rows,) or len(shape) > 3:
        raise ValueError(
            f"{where} returns logits {list(shape)} for a batch of {rows} examples "
            f"{[*example.shape[1:]]}; it must return [B, C]"
        )
    if shape[-1] != classes:
        hint = " (for a score z, [0, z])" if shape[-1] == 1 and classes == 2 else ""
        raise ValueError(
            f"{where} returns {shape[-1]} logits, but the data has {classes} classes; "
            f"give its last layer {classes} outputs{hint}"
        )


# Examples per head in a trial batch, unlike any usual size of an image or a layer.
_ROWS = 7
_name = functools.partial(jax.tree_util.keystr, simple=True, separator="/")


@functools.lru_cache(maxsize=4)  # rows of a study share one, given weights included
def _traced(
    network: Network, example: jax.ShapeDtypeStruct, shards: int
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Shape of the logits, and paths of state that differs between data shards."""
    rows = _ROWS * network.heads
    batch = jax.ShapeDtypeStruct((rows * shards, *example.shape[1:]), example.dtype)
    variables = jax.eval_shape(network.init, jax.random.key(0), example)
    shapes, local = [], []

    def trial(variables: PyTree, x: jax.Array) -> tuple[()]:
        outputs, _ = network.apply(variables, x, train=False)
        key = jax.random.fold_in(jax.random.key(0), jax.lax.axis_index(DATA))
        _, state = network.apply(variables, x, train=True, key=key, axis_name=DATA)
        old = {k: v for k, v in variables.items() if k != "params"}
        if change := changed_form(old, state):
            raise NetworkError(
                f"{network.name} changes the form of its state in an update: {change}"
            )
        shapes.append(outputs.logits.shape)
        for path, leaf in jax.tree_util.tree_leaves_with_path(state):
            if shards > 1 and DATA in varying_axes(leaf):
                local.append(_name(path))
        return ()

    sharded = jax.shard_map(
        trial,
        mesh=AbstractMesh((shards,), (DATA,), axis_types=(AxisType.Auto,)),
        in_specs=(P(), P(DATA)),
        out_specs=(),
    )
    program = jax.make_jaxpr(sharded)(variables, batch)
    if not jax.tree.leaves(variables.get("params")):
        raise NetworkError(f"{network.name} has no parameters to train")
    # Without a channel axis flax takes the whole batch for one image.
    seen = convolved_rows(program.jaxpr)
    if len(example.shape) == 3 and any(count % _ROWS for count in seen):
        raise NetworkError(
            f"{network.name} convolves over examples {[*example.shape[1:]]} as if the "
            "batch were an axis of the image; images are [N, H, W, C]: add a channel "
            "axis with images[..., None]"
        )
    return shapes[0], tuple(local)


def changed_form(before: PyTree, after: PyTree) -> str:
    """The first difference of two trees in shape or dtype; empty if there is none."""

    def forms(tree: PyTree) -> dict[str, str]:
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return {_name(path): f"{x.dtype}{list(x.shape)}" for path, x in leaves}

    old, new = forms(before), forms(after)
    for name in old | new:
        was, now = old.get(name, "absent"), new.get(name, "absent")
        if was != now:
            return f"{name} was {was} and is {now} then"
    return ""
