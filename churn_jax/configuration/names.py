"""Names of data sets and networks in titles and tables."""

import re
from pathlib import Path

from churn_jax.configuration.network import ModelConfig

_DATA_NAMES = {
    "digits": "the UCI hand-written digits",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "svhn_cropped": "SVHN",
    "tiny_imagenet": "TinyImageNet",
    "imagenet2012": "ImageNet",
    "i_naturalist2017": "iNaturalist 2017",
    "i_naturalist2018": "iNaturalist 2018",
    "ag_news_subset": "AG News",
    "clicks": "synthetic clicks",
    "clicks-tiny": "a few synthetic clicks",
}
_NETWORK_NAMES = {
    "mlp": "MLP",
    "click": "a click model",
    "lenet5": "LeNet5",
    "swin_tiny": "Swin-T",
    "bert_base": "BERT base",
    "bert_tiny": "BERT tiny",
    "text_encoder": "a small text encoder",
}
_FAMILIES = {
    "wide_resnet": "WRN-",
    "resnet_v2_": "ResNet-v2-",
    "resnet": "ResNet-",
    "densenet": "DenseNet-",
    "vgg": "VGG-",
}


def data_name(name: str) -> str:
    """The name of a data set in titles: in words if known, else of file or object."""
    plain = re.sub(r"@[0-9a-f]{8}$", "", name.removeprefix("tfds:"))
    return _DATA_NAMES.get(plain, Path(plain).name)


def network_name(name: str) -> str:
    """The name of a network in titles: `WRN-28-10`, or `Net`, a class of the user's."""
    name = short_name(name)
    if name in _NETWORK_NAMES:
        return _NETWORK_NAMES[name]
    for family, title in _FAMILIES.items():
        if name.startswith(family):
            return title + name.removeprefix(family).strip("_").replace("_", "-")
    return name


def network_words(model: ModelConfig) -> str:
    """A network in words, as `mlp 256 256`."""
    return " ".join(map(str, (short_name(model.name), *model.features)))


def short_name(name: str) -> str:
    """The name of a user's object without its module and the hash of its content."""
    return name.rpartition(":")[2].partition("@")[0]


def data_stem(name: str) -> str:
    """`mnist` of `mnist`, of `tfds:mnist` and of `sets/mnist.npz`."""
    return Path(name.removeprefix("tfds:")).name.removesuffix(".npz")
