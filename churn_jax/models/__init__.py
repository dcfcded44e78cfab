"""Linen networks: `(images, train) -> ModelOutput(logits, features)`."""

from churn_jax.models.banded import banded_convolution
from churn_jax.models.base import ModelOutput
from churn_jax.models.cnn import LeNet5
from churn_jax.models.mlp import MLP
from churn_jax.models.resnet import BasicBlock, ResNet
from churn_jax.models.zoo import available, create

__all__ = [
    "MLP",
    "BasicBlock",
    "LeNet5",
    "ModelOutput",
    "ResNet",
    "available",
    "banded_convolution",
    "create",
]
