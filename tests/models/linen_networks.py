"""Variables for tiny batch-norm networks, and a training loss with its gradients."""

import jax
import jax.numpy as jnp
import numpy as np


def images(*shape):
    return jnp.asarray(np.random.default_rng(3).normal(size=shape), jnp.float32)


def drawn_variables(model, shape=(1, 8, 8, 3)):
    """For images of a shape; drawn by NumPy, which compiles nothing.

    Kernels keep activations of order one; batch norm's parameters are off default.
    """
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros(shape))
    generator = np.random.default_rng(0)

    def draw(path, leaf):
        name = path[-1].key
        start = float(name in ("scale", "var"))
        if path[0].key == "batch_stats":
            return jnp.full(leaf.shape, start)
        spread = np.prod(leaf.shape[:-1]) ** -0.5 if name == "kernel" else 0.1
        return jnp.asarray(start + spread * generator.normal(size=leaf.shape), "f4")

    return jax.tree_util.tree_map_with_path(draw, shapes)


def evaluated(model, x):
    """Variables with running statistics off default too, and what the model says."""
    variables = drawn_variables(model, x.shape)
    generator = np.random.default_rng(1)
    if "batch_stats" in variables:
        variables["batch_stats"] = jax.tree.map(
            lambda leaf: leaf + jnp.asarray(generator.uniform(0, 1, leaf.shape), "f4"),
            variables["batch_stats"],
        )
    return variables, jax.jit(model.apply)(variables, x)


def loss_and_gradients(model):
    """`(params, stats, images) -> ((loss, (logits, stats)), gradients)`."""

    def loss(params, stats, images):
        output, updated = model.apply(
            {"params": params, "batch_stats": stats},
            images,
            train=True,
            mutable=["batch_stats"],
        )
        total = jnp.sum(jnp.sin(output.logits))
        if model.axis_name is not None:
            total = jax.lax.psum(total, model.axis_name)
        return total, (output.logits, updated["batch_stats"])

    return jax.value_and_grad(loss, has_aux=True)
