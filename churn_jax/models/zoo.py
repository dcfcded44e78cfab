"""Networks by name."""

import dataclasses
from functools import partial
from typing import Any

import flax.linen as nn

from churn_compare.suggestions import did_you_mean
from churn_jax.models.airbench import Airbench
from churn_jax.models.convnets import VGG, DenseNet, LeNet5
from churn_jax.models.mlp import MLP
from churn_jax.models.names import MODELS
from churn_jax.models.residual import ImageNetResNet, ResNet, ResNetV2, WideResNet
from churn_jax.models.transformers import Bert, Swin
from churn_jax.setting_checks import check_least

# Each has its line in `NETWORKS`.
mlp = partial(MLP, features=(256, 256))
lenet5 = LeNet5
resnet20 = partial(ResNet, depth=20)
resnet32 = partial(ResNet, depth=32)
resnet56 = partial(ResNet, depth=56)
resnet18 = partial(ImageNetResNet, stages=(2, 2, 2, 2), block="basic")
resnet50 = ImageNetResNet
resnet101 = partial(ImageNetResNet, stages=(3, 4, 23, 3))
resnet_v2_8 = partial(ResNetV2, stages=(1, 1), width=8)
resnet_v2_50 = ResNetV2
resnet8 = partial(ResNet, depth=8)
airbench94 = Airbench
wide_resnet28_1 = partial(WideResNet, depth=28, widen=1)
wide_resnet28_2 = partial(WideResNet, depth=28, widen=2)
wide_resnet28_5 = partial(WideResNet, depth=28, widen=5)
wide_resnet28_10 = partial(WideResNet, depth=28, widen=10)
wide_resnet10_1 = partial(WideResNet, depth=10, widen=1)
densenet121 = DenseNet
densenet161 = partial(DenseNet, blocks=(6, 12, 36, 24), growth=48, width=96)
densenet_tiny = partial(DenseNet, blocks=(2, 2), growth=8, width=16)
vgg11 = partial(VGG, stages=(1, 1, 2, 2, 2))
vgg11_bn = partial(VGG, stages=(1, 1, 2, 2, 2), batch_norm=True)
vgg13 = VGG
vgg13_bn = partial(VGG, batch_norm=True)
vgg16 = partial(VGG, stages=(2, 2, 3, 3, 3))
vgg16_bn = partial(VGG, stages=(2, 2, 3, 3, 3), batch_norm=True)
vgg19 = partial(VGG, stages=(2, 2, 4, 4, 4))
vgg19_bn = partial(VGG, stages=(2, 2, 4, 4, 4), batch_norm=True)
vgg_tiny = partial(VGG, stages=(1, 1, 1), width=8, grid=3, hidden=64)
swin_tiny = Swin
bert_base = Bert
bert_tiny = partial(Bert, depth=2, width=128, attention_heads=2, hidden=512)
text_encoder = partial(
    Bert,
    vocabulary_size=20_000,
    positions=256,
    types=0,
    depth=2,
    width=64,
    attention_heads=4,
    hidden=256,
    pooling="mean",
)


def available() -> tuple[str, ...]:
    """The names that `create` takes.

    `churn_jax.models.names` has a line on each. Tiny forms are for trying things out:
    `densenet_tiny` and `vgg_tiny` take 28-pixel images as LeNet5 does, and two to three
    times its time on a CPU. Networks for texts take token ids `[B, L]`, 0 where a text
    has ended; `text_encoder` has 20,000 tokens unless `vocabulary_size` says otherwise,
    and the mean over a text, which learns faster than its first token does.

    Example:
        >>> available()[:5]
        ('mlp', 'lenet5', 'resnet20', 'resnet32', 'resnet56')
    """
    return tuple(MODELS)


def is_family(value: Any) -> bool:
    """True if a network is a Linen class, or a partial of one, with `num_classes`."""
    made = getattr(value, "func", value)
    return (
        isinstance(made, type)
        and issubclass(made, nn.Module)
        and "num_classes" in _fields(value)
    )


def _fields(build: Any) -> set[str]:
    """The settings of a network."""
    module: Any = getattr(build, "func", build)
    return {f.name for f in dataclasses.fields(module)} - {"name", "parent"}


def create(name: str, *, num_classes: int, **overrides) -> nn.Module:
    """The network called `name`, with C classes.

    Args:
        name: one of `available()`, or `package.module:Name` of a Linen module of your
            own with a field `num_classes`.
        num_classes: C, at least two.
        **overrides: fields of the module, for example `dtype`, `dropout`,
            `activation`, `remat` (all but `mlp` and `lenet5`), `features` (MLP), and
            `layers`, a `BatchEnsemble` or a `MIMO` (MLP, LeNet5, ResNets for 32 pixels
            except v2, wide ResNets).

    Returns:
        A Linen module `(images or tokens, train) -> ModelOutput`.

    Raises:
        ValueError: the name or a field is unknown; the message has the closest ones,
            or the networks that can be made of such `layers`.

    Example:
        >>> create("resnet20", num_classes=100, remat=True).depth
        20
        >>> create("resnet-20", num_classes=10)
        Traceback (most recent call last):
            ...
        ValueError: unknown network 'resnet-20'; known: mlp, lenet5, ...
    """
    build = MODELS.find(name)
    check_least("num_classes", num_classes, 2)
    fields = _fields(build)
    for field in overrides:
        if field == "layers" and field not in fields:
            able = (n for n, b in MODELS.items() if field in _fields(b))
            raise ValueError(
                f"{name!r} is made of plain layers only; these take layers=: "
                f"{', '.join(able)}"
            )
        if field not in fields:
            raise ValueError(
                f"{name!r} has no field {field!r}; fields: {', '.join(sorted(fields))}"
                f"{did_you_mean(field, fields)}"
            )
    return build(num_classes=num_classes, **overrides)
