"""Linen networks: `(images, train) -> ModelOutput(logits, features)`."""

from churn_jax.models.banded import banded_convolution
from churn_jax.models.base import ModelOutput
from churn_jax.models.batch_ensemble import (
    BatchEnsemble,
    BatchEnsembleConv,
    BatchEnsembleDense,
    MemberBatchNorm,
    check_fast_weights,
)
from churn_jax.models.click import ClickModel
from churn_jax.models.cnn import LeNet5
from churn_jax.models.convert import (
    from_hugging_face,
    from_timm,
    to_hugging_face,
    to_timm,
)
from churn_jax.models.gate import Gate
from churn_jax.models.layers import PLAIN, Layers
from churn_jax.models.mimo import MIMO
from churn_jax.models.mlp import MLP
from churn_jax.models.resnet import BasicBlock, ResNet
from churn_jax.models.resnet_imagenet import ImageNetBlock, ImageNetResNet
from churn_jax.models.resnet_v2 import PreActivationBottleneck, ResNetV2
from churn_jax.models.wide_resnet import PreActivationBlock, WideResNet
from churn_jax.models.zoo import available, create

__all__ = [
    "MIMO",
    "MLP",
    "PLAIN",
    "BasicBlock",
    "BatchEnsemble",
    "BatchEnsembleConv",
    "BatchEnsembleDense",
    "ClickModel",
    "Gate",
    "ImageNetBlock",
    "ImageNetResNet",
    "Layers",
    "LeNet5",
    "MemberBatchNorm",
    "ModelOutput",
    "PreActivationBlock",
    "PreActivationBottleneck",
    "ResNet",
    "ResNetV2",
    "WideResNet",
    "available",
    "banded_convolution",
    "check_fast_weights",
    "create",
    "from_hugging_face",
    "from_timm",
    "to_hugging_face",
    "to_timm",
]
