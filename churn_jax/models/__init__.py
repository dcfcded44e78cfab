"""Linen networks: `(images, train) -> ModelOutput(logits, features)`."""

from typing import TYPE_CHECKING

from churn_jax.lazy import load_on_use

if TYPE_CHECKING:
    from churn_jax.models.airbench import Airbench
    from churn_jax.models.batch_ensemble import BatchEnsemble, BatchEnsembleDense
    from churn_jax.models.click import ClickModel
    from churn_jax.models.convnets import VGG, DenseNet, LeNet5
    from churn_jax.models.layers import (
        ACTIVATIONS,
        Layers,
        ModelOutput,
        activation,
        smelu,
    )
    from churn_jax.models.mimo import MIMO
    from churn_jax.models.mlp import MLP, Gate
    from churn_jax.models.names import MODELS
    from churn_jax.models.public_weights import (
        from_hugging_face,
        from_timm,
        load_pretrained,
        to_hugging_face,
        to_timm,
    )
    from churn_jax.models.residual import ImageNetResNet, ResNet, ResNetV2, WideResNet
    from churn_jax.models.transformers import Bert, Swin
    from churn_jax.models.zoo import available, create, is_family


__all__ = [
    "ACTIVATIONS",
    "MIMO",
    "MLP",
    "MODELS",
    "VGG",
    "Airbench",
    "BatchEnsemble",
    "BatchEnsembleDense",
    "Bert",
    "ClickModel",
    "DenseNet",
    "Gate",
    "ImageNetResNet",
    "Layers",
    "LeNet5",
    "ModelOutput",
    "ResNet",
    "ResNetV2",
    "Swin",
    "WideResNet",
    "activation",
    "available",
    "create",
    "from_hugging_face",
    "from_timm",
    "is_family",
    "load_pretrained",
    "smelu",
    "to_hugging_face",
    "to_timm",
]

_FILES = (
    "names",  # which needs no Flax
    "airbench",
    "batch_ensemble",
    "click",
    "convnets",
    "convolution",
    "layers",
    "mimo",
    "mlp",
    "public_weights",
    "residual",
    "transformers",
    "zoo",
)

__getattr__, __dir__ = load_on_use(__name__, __all__, _FILES)
