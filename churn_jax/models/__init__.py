"""Linen networks: `(images, train) -> ModelOutput(logits, features)`."""

from typing import TYPE_CHECKING

from churn_compare.lazy import load_on_use

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

__getattr__, __dir__, __all__ = load_on_use(__name__)
