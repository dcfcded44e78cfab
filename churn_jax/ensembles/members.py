"""Members: one variables tree with a leading `M` axis, and committees of such trees.

A committee is a tuple of *groups*, one per architecture, each a stacked tree; their
logits are concatenated along the member axis in group order. A group may instead hold
the gate, which weights the members and is not one of them.
"""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from churn_jax._jax import all_gather_replicated
from churn_jax.ensembles import mapping as slots
from churn_jax.ensembles.network import (
    Network,
    NetworkError,
    Outputs,
    described,
    device_key,
)

stack = slots.stack
"""`stack(trees)` stacks trees of one structure along a new leading axis."""


@dataclasses.dataclass(frozen=True)
class Group:
    """`size` independently weighted networks of one kind."""

    network: Network  # of every slot
    size: int = 1  # S, how many
    # the networks are not members but weight them: each gives `[B, K]` log-weights, and
    # the S x K of them belong to the committee's members in order. One network for all
    # M (S = 1), or one per member (K = 1), which can be sharded as the members are.
    gate: bool = False

    def __post_init__(self):
        """Checks that it is a network, and that the size is positive."""
        if not isinstance(self.network, Network):
            raise NetworkError(
                "a group is of a Network, which from_linen, from_nnx, from_function "
                f"and as_network make; got {described(self.network)}"
            )
        if self.size < 1:
            raise ValueError(f"a group needs at least one network; got {self.size}")

    @property
    def members(self) -> int:
        """Members that this group yields, `size` times the network's heads; or 0."""
        return 0 if self.gate else self.size * self.network.heads


def take_member(variables: PyTree, index: int | jax.Array) -> PyTree:
    """Member `index` of a stacked tree, counted from 0, or from the end if negative."""
    for count in {leaf.shape[0] for leaf in jax.tree.leaves(variables)}:
        if not isinstance(index, jax.core.Tracer) and not -count <= index < count:
            raise IndexError(f"there are {count} members; got index {index}")
    return jax.tree.map(lambda leaf: leaf[index], variables)


def apply_members(
    apply: Callable[..., tuple[Outputs, PyTree]],
    variables: PyTree | Sequence[PyTree],
    x: jax.Array,
    *,
    mapping: str = "vmap",
    keys: jax.Array | None = None,
    **kwargs,
) -> tuple[Outputs, PyTree]:
    """Applies stacked members to one input.

    Args:
        apply: `(variables, x, **kwargs) -> (Outputs, model_state)`.
        variables: leaves `[S, ...]`, or a list of S trees (which are unrolled).
        x: `[B, ...]`, shared by all members.
        mapping: `vmap` or `unroll`.
        keys: `[S]` dropout keys, one per network; None draws nothing.
        **kwargs: passed on (`train`, `axis_name`).

    Returns:
        `(Outputs(logits [M, B, C]), model_state)`; the state has the form of
        `variables`. A network with K heads contributes K rows: M = S x K.
    """

    def one(v, key=None):
        return apply(v, x, key=key, **kwargs)

    if isinstance(variables, list):
        drawn = [None] * len(variables) if keys is None else list(keys)
        results = [one(v, key) for v, key in zip(variables, drawn, strict=True)]
        outputs = slots.stack([r[0] for r in results])
        state = [r[1] for r in results]
    else:
        count = jax.tree.leaves(variables)[0].shape[0]
        arguments = (variables,) if keys is None else (variables, keys)
        outputs, state = slots.map_slots(one, arguments, count=count, mapping=mapping)
    if outputs.logits.ndim == 4:  # [S, K, B, C]
        outputs = _flatten_heads(outputs)
    return outputs, state


def _flatten_heads(outputs: Outputs) -> Outputs:
    """`[S, K, ...]` to `[S x K, ...]`; features that the heads share are repeated."""
    heads, features = outputs.logits.shape[1:3], outputs.features
    if features is not None and (features.ndim, features.shape[1:3]) != (4, heads):
        shape = (len(features), heads[0], *features.shape[1:])
        features = jnp.broadcast_to(features[:, None], shape)
    for name in ("part", "gate"):
        leaf = getattr(outputs, name)
        if leaf is not None and leaf.shape[1:3] != heads:
            raise ValueError(
                f"a network with {heads[0]} heads must return a {name} of every head, "
                f"[{heads[0]}, {heads[1]}, ...]; got {leaf.shape[1:]}"
            )
    outputs = dataclasses.replace(outputs, features=features)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), outputs)


def apply_committee(
    groups: Sequence[Group],
    variables: Sequence[PyTree],
    x: jax.Array,
    *,
    member_axis: str | None = None,
    key: jax.Array | None = None,
    extras: tuple[str, ...] = (),
    **kwargs,
) -> tuple[Outputs, list[PyTree]]:
    """Applies every group and concatenates the members' outputs.

    Args:
        groups: the committee.
        variables: one stacked tree (or list of trees) per group.
        x: `[B, ...]`.
        member_axis: inside `shard_map`, the mesh axis over which every group's
            networks are sharded; logits are gathered over it.
        key: dropout key, equal on all devices that share the batch; every network of
            the committee draws from its own.
        extras: `features` or `part`, to be gathered from all groups and devices like
            the logits; a committee of one group that is not sharded over members has
            them anyway.
        **kwargs: passed to `apply_members`.

    Returns:
        `(Outputs(logits [M, B, C], features, part, gate [M, B]), model_states)`; what
        no network returns, or nobody asked for, is None.

    Raises:
        ValueError: a network has another number of heads than it says, members'
            extras differ in form, or there are gates alone or of two groups.
    """
    results = []
    for position, (group, v) in enumerate(zip(groups, variables, strict=True)):
        count = len(v) if isinstance(v, list) else jax.tree.leaves(v)[0].shape[0]
        keys = None
        if key is not None:
            first = 0 if member_axis is None else jax.lax.axis_index(member_axis)
            slot = first * count + jnp.arange(count)
            own = key
            if not group.network.places_draws:
                own = device_key(key, kwargs.get("axis_name"))
            group_key = jax.random.fold_in(own, position)
            keys = jax.vmap(jax.random.fold_in, (None, 0))(group_key, slot)
        result = apply_members(group.network.apply, v, x, keys=keys, **kwargs)
        shape, heads = result[0].logits.shape, group.network.heads
        if not group.gate and (len(shape) != 3 or shape[0] != count * heads):
            rows = f"{shape[0] // count} members" if len(shape) == 3 else "another form"
            raise ValueError(
                f"{group.network.name} has heads={heads}, so {count} of them must give "
                f"logits [{count * heads}, B, C]; got {shape}, {rows} each"
            )
        results.append(result)

    def gather(leaf):
        return leaf if member_axis is None else all_gather_replicated(leaf, member_axis)

    answers = [outputs for outputs, _ in results]
    states = [state for _, state in results]
    networks = [(g, o) for g, o in zip(groups, answers) if not g.gate]
    if not networks or len(answers) - len(networks) > 1:
        raise ValueError(
            "a committee has groups of members and at most one of gates; got "
            f"{len(networks)} and {len(answers) - len(networks)}"
        )
    alone = len(networks) == 1 and member_axis is None
    carried = {
        name: _concatenated(name, networks, gather)
        for name in ("features", "part")
        if alone or name in extras
    }
    together = _concatenated("logits", networks, gather)
    assert together is not None
    gates = [gather(_weights(o.logits)) for g, o in zip(groups, answers) if g.gate]
    gate = gates[0] if gates else _concatenated("gate", networks, gather)
    if gate is not None and gate.shape != together.shape[:2]:
        raise ValueError(
            f"the gate must give one log-weight per member and example, "
            f"{together.shape[:2]}; got {gate.shape}"
        )
    return Outputs(together, gate=gate, **carried), states


def _weights(raw: jax.Array) -> jax.Array:
    """Log-weights of S gate networks, `[S, B, K]` to `[S x K, B]`."""
    if raw.ndim != 3:
        raise ValueError(f"a gate network must return [B, K]; got {raw.shape[1:]}")
    return jnp.moveaxis(raw, 2, 1).reshape(-1, raw.shape[1])


def _concatenated(name: str, networks, gather) -> jax.Array | None:
    """One kind of output of all members, `[M, B, ...]`; None where there is none."""
    parts = [getattr(o, name) for _, o in networks]
    names = [g.network.name for g, _ in networks]
    if all(part is None for part in parts):
        return None
    if any(part is None for part in parts):
        without = [n for n, part in zip(names, parts) if part is None]
        raise ValueError(f"{', '.join(without)} returns no {name}; others do")
    if len({part.shape[2:] for part in parts}) > 1:
        forms = ", ".join(f"{n} {part.shape[2:]}" for n, part in zip(names, parts))
        raise ValueError(f"members must agree in the form of their {name}; got {forms}")
    gathered = [gather(part) for part in parts]
    return gathered[0] if len(gathered) == 1 else jnp.concatenate(gathered)
