"""How fast a network can be trained at most, from its arithmetic and its bytes.

    python benchmarks/ceiling.py --models resnet20 wide_resnet28_10 --chips H100
    JAX_PLATFORMS=cpu python benchmarks/ceiling.py --models resnet20 --chips here

Every product of a training step (a convolution or a dense layer; forward, and its
gradients in the input and in the kernel) takes as long as its arithmetic or its reading
and writing, whichever is longer. Batch norm by itself reads what a convolution wrote
and writes it again: three passes forward, five backward, each at the speed of memory.
Weights are read, and moved by momentum SGD, once per update. The column `fused` leaves
the passes of batch norm out, as if they were part of a convolution.

Nothing is run, so no GPU is needed. `here` is this machine's processor, whose peaks are
measured: XLA's best rate of a square product, and of reading and writing 64 MB.
`replicas.py` puts its measurements next to this.
"""

import argparse
import dataclasses
import functools
import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from turns import head, row

from churn_jax import models
from churn_jax.ensembles.mapping import equations
from churn_jax.models.layers import compiling_for
from churn_jax.planning.compile import CHIPS


class Peak(NamedTuple):
    """Operations per second at most, TF32 for float32 on a GPU; bytes per second."""

    bfloat16: float
    float32: float
    bandwidth: float


# Dense peaks of NVIDIA's data sheets of the A100, the H100 and the H200. Names are
# parts of `jax.Device.device_kind`, the longer ones first.
CEILINGS = {
    "H200": Peak(989e12, 494e12, 4.8e12),
    "H100 PCIe": Peak(756e12, 378e12, 2.0e12),
    "H100": Peak(989e12, 494e12, 3.35e12),
    "A100-SXM4-80GB": Peak(312e12, 156e12, 2.04e12),
    "A100": Peak(312e12, 156e12, 1.555e12),
    **{c.kind: Peak(c.flops, c.flops, c.bandwidth) for c in CHIPS.values()},
}


def of_this_device() -> Peak | None:
    """The peak of JAX's first device, measured on a CPU; None if it is not known."""
    if jax.default_backend() == "cpu":
        return measured()
    kind = jax.devices()[0].device_kind
    return next((peak for name, peak in CEILINGS.items() if name in kind), None)


@functools.cache
def measured() -> Peak:
    """The best of some seconds; products in bfloat16 count as those in float32."""
    square, moved = jnp.ones((2048, 2048)), jnp.ones(2**23)
    rate = 2.0 * 2048**3 / _fastest(lambda x: (x, x @ x), square)
    # In place, since fresh memory costs more than to write it.
    return Peak(rate, rate, 2.0 * moved.nbytes / _fastest(lambda x: (-x, ()), moved))


def _fastest(function, x) -> float:
    """Seconds of the fastest of 30 calls `x, _ = function(x)`."""
    compiled = jax.jit(function, donate_argnums=0).lower(x).compile()
    seconds = []
    for _ in range(30):
        began = time.perf_counter()
        x, _ = jax.block_until_ready(compiled(x))
        seconds.append(time.perf_counter() - began)
    return min(seconds)


@dataclasses.dataclass(frozen=True)
class Step:
    """One update of one network."""

    products: tuple[tuple[float, float], ...]  # operations and bytes of each
    norm_bytes: float  # read and written by separate batch norms
    weight_bytes: float  # read and written by the optimiser
    dtype: Any  # of the products

    def rate(self, peak: Peak) -> float:
        """Operations per second of a device in this precision."""
        return peak.bfloat16 if self.dtype == jnp.bfloat16 else peak.float32

    def seconds(self, peak: Peak, *, fused: bool = False) -> float:
        """The least time on a device."""
        rate = self.rate(peak)
        times = (max(f / rate, b / peak.bandwidth) for f, b in self.products)
        moved = self.weight_bytes + (0.0 if fused else self.norm_bytes)
        return sum(times) + moved / peak.bandwidth

    def share(self, peak: Peak, *, fused: bool = False) -> float:
        """Share of the peak arithmetic in that time."""
        flops = sum(f for f, _ in self.products)
        return flops / self.rate(peak) / self.seconds(peak, fused=fused)


def step_of(network, image: tuple[int, ...], batch: int, dtype=jnp.float32) -> Step:
    """The products of a training step of a Linen network of the zoo."""
    x = jax.ShapeDtypeStruct((batch, *image), jnp.float32)
    variables = jax.eval_shape(network.init, jax.random.key(0), x)
    has_norm = "batch_stats" in variables

    def forward(variables, x):
        return network.apply(variables, x, train=True, mutable=["batch_stats"])[0]

    with compiling_for("gpu"):  # a CPU's forms multiply zeros too
        program = jax.make_jaxpr(forward)(variables, x).jaxpr
    products, norm_bytes, size = [], 0.0, jnp.dtype(dtype).itemsize
    found = equations(program, "conv_general_dilated", "dot_general")
    for number, equation in enumerate(found):
        left, right = (math.prod(v.aval.shape) for v in equation.invars)
        out = math.prod(equation.outvars[0].aval.shape)
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            length = math.prod(equation.invars[0].aval.shape[a] for a in contracted)
        else:
            channels = equation.params["dimension_numbers"].rhs_spec[0]
            length = right // equation.invars[1].aval.shape[channels]
            norm_bytes += 8.0 * size * out * has_norm
        # Forward, the kernel's gradient, and the input's but for the images.
        one = 2.0 * out * length, float(size * (left + right + out))
        products += [one] * (2 if number == 0 else 3)
    parameters = sum(math.prod(p.shape) for p in jax.tree.leaves(variables["params"]))
    # Gradient, momentum and weight are read, the last two written, in float32.
    return Step(tuple(products), norm_bytes, 5.0 * 4 * parameters, jnp.dtype(dtype))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["resnet20", "resnet32", "wide_resnet28_10", "airbench94"]
    parser.add_argument("--models", nargs="+", default=names)
    chips = [*CEILINGS, "here"]
    parser.add_argument("--chips", nargs="+", choices=chips, default=["H100"])
    parser.add_argument("--batch", type=int, default=128)
    args = parser.parse_args()
    peaks = CEILINGS | ({"here": measured()} if "here" in args.chips else {})
    if "here" in peaks:
        peak = peaks["here"]
        rate, bandwidth = peak.float32 / 1e9, peak.bandwidth / 1e9
        print(f"here: {rate:,.0f} GFLOP/s, {bandwidth:.1f} GB/s\n")
    head("network", "chip", "dtype", "images/s at most", "of peak", "fused", "of peak")
    for name in args.models:
        for dtype in (jnp.float32, jnp.bfloat16):
            network = models.create(name, num_classes=10, dtype=dtype)
            step = step_of(network, (32, 32, 3), args.batch, dtype)
            for chip in args.chips:
                if chip == "here" and dtype != jnp.float32:
                    continue
                cells = [name, chip, jnp.dtype(dtype).name]
                for fused in (False, True):
                    seconds = step.seconds(peaks[chip], fused=fused)
                    share = step.share(peaks[chip], fused=fused)
                    cells += [f"{args.batch / seconds:,.0f}", f"{share:.0%}"]
                row(*cells)


if __name__ == "__main__":
    main()
