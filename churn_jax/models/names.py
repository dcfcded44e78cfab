"""The names of networks, with a line on each; the networks are in `zoo.py`.

Lists and completion read them, so nothing here loads Flax.
"""

import dataclasses

from churn_jax.registry import Registry

NETWORKS = {
    "mlp": "two layers of 256 (model.features)",
    "lenet5": "convolutional, for small grey images",
    "resnet20": "for 32-pixel images",
    "resnet32": "for 32-pixel images",
    "resnet56": "for 32-pixel images",
    "resnet18": "for 224-pixel images",
    "resnet50": "for 224-pixel images",
    "resnet101": "for 224-pixel images",
    "resnet_v2_8": "pre-activation, two blocks, for tiny runs",
    "resnet_v2_50": "pre-activation, for 224-pixel images",
    "resnet8": "for 32-pixel images, for tiny runs",
    "wide_resnet28_1": "for 32- and 64-pixel images",
    "wide_resnet28_2": "for 32- and 64-pixel images",
    "wide_resnet28_5": "for 32- and 64-pixel images",
    "wide_resnet28_10": "for 32- and 64-pixel images",
    "wide_resnet10_1": "for 32-pixel images, for tiny runs",
    "airbench94": "for CIFAR-10, learns it in ten epochs",
    "densenet121": "for 224-pixel images",
    "densenet161": "for 224-pixel images",
    "densenet_tiny": "two blocks of two layers, for tiny runs",
    "vgg11": "for 224-pixel images",
    "vgg11_bn": "with batch norm, for 224-pixel images",
    "vgg13": "for 224-pixel images",
    "vgg13_bn": "with batch norm, for 224-pixel images",
    "vgg16": "for 224-pixel images",
    "vgg16_bn": "with batch norm, for 224-pixel images",
    "vgg19": "for 224-pixel images",
    "vgg19_bn": "with batch norm, for 224-pixel images",
    "vgg_tiny": "three convolutions, for tiny runs",
    "swin_tiny": "Swin-T, a transformer for 224-pixel images",
    "bert_base": "for texts",
    "bert_tiny": "two layers of width 128, for texts",
    "text_encoder": "two layers of width 64, for texts; trains from scratch on a CPU",
}
"""The networks, described as `churn-jax study --list` shows them."""

MODELS = Registry(
    "network",
    {name: f"churn_jax.models.zoo:{name}" for name in NETWORKS},
    lambda value: callable(value) or dataclasses.is_dataclass(value),
)
"""Networks by name: Linen classes, or partials of them, with a field `num_classes`.

Your own may have any form that `churn_jax.ensembles.as_network` takes.
"""
