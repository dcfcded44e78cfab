"""Variables of tiny networks, drawn by NumPy, and what a program consists of."""

import jax
import numpy as np

# Arrays here are NumPy's: every operation on one of JAX's is compiled for its shape.

# Fields of small transformers.
BERT = {"num_classes": 3, "vocabulary_size": 20, "positions": 8}
BERT |= {"width": 8, "attention_heads": 2, "hidden": 12}
SWIN = {"stages": (2, 1), "attention_heads": (1, 2), "patch": 2, "window": 3}


def images(*shape):
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def drawn_variables(model, x, seed=0):
    """For inputs such as `x`. Drawing by NumPy compiles nothing.

    Kernels keep activations of order one; nothing else is at its default, so that no
    bias, scale or running statistic can be left out.
    """
    shapes = jax.eval_shape(model.init, jax.random.key(0), x)
    generator = np.random.default_rng(seed)

    def draw(path, leaf):
        name = path[-1].key
        start = float(name in ("scale", "var") or name.startswith("fast"))
        fan_in = np.prod(leaf.shape[:-1])
        spread = {"kernel": fan_in**-0.5, "embedding": 1.0}.get(name, 0.1)
        spread = 0.5 if name.startswith("fast") else spread
        moved = generator.normal(size=leaf.shape)
        moved = np.abs(moved) if name == "var" else moved
        return (start + spread * moved).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def equations(jaxpr):
    """All of a program, those of the programs inside it included."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for given in equation.params.values():
            for part in given if isinstance(given, tuple | list) else (given,):
                if hasattr(getattr(part, "jaxpr", part), "eqns"):
                    yield from equations(part)


def products(jaxpr):
    """Its matrix products and convolutions."""
    names = ("dot_general", "conv_general_dilated")
    return [e for e in equations(jaxpr) if e.primitive.name in names]
