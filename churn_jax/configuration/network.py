"""Which network a study trains, and what networks and data sets are called."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from churn_jax import ensembles, models
from churn_jax.lazy import jnp
from churn_jax.methods.base import Method
from churn_jax.setting_checks import check_choice, check_fields, setting

if TYPE_CHECKING:
    from churn_jax.models.public_weights import Pretrained

DTYPES = ("float32", "bfloat16")
_OPTIONS = {
    "batch_ensemble": ("fast_weights", "bias", "norm_of", "batches"),
    "mimo": ("repetition",),
}


@dataclasses.dataclass(frozen=True)
class Sharing:
    """Members that share one set of weights.

    Attributes:
        kind: `batch_ensemble`, or `mimo`: one network with an input and an output per
            member.
        heads: K, members per set of weights; 0 is all that the method has.
        fast_weights: how the factors of a BatchEnsemble start, `normal` (mean 1,
            deviation 0.5) or `signs`.
        bias: biases of a BatchEnsemble: one per `member`, `shared`, or `none`.
        norm_of: batch norm of a BatchEnsemble: over the rows of all members (`shared`),
            or one per `member`.
        batches: what a member of a BatchEnsemble sees in training: the whole batch
            (`tiled`), or its own part of it (`split`, which goes with
            `member_sample="split"` of the method).
        repetition: probability that a row of MIMO's training batch has one image for
            all members.

    Example:
        >>> Sharing(heads=4, fast_weights="signs").label(4)
        'be4-signs'
    """

    kind: str = setting("batch_ensemble", of=tuple(_OPTIONS))
    heads: int = setting(0, of=0)
    fast_weights: str = "normal"
    bias: str = "member"
    norm_of: str = "shared"
    batches: str = "tiled"
    repetition: float = 0.0

    def __post_init__(self):
        """Checks what the layers do not."""
        check_fields(self, "sharing ")
        own = ("kind", "heads", *_OPTIONS[self.kind])
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in own and value != field.default:
                raise ValueError(
                    f"{self.kind} has no {field.name}; got {value!r} (its options: "
                    f"{', '.join(_OPTIONS[self.kind])})"
                )

    def layers(self, heads: int) -> models.Layers:
        """The layers of a network with `heads` members.

        Raises:
            ValueError: an option is unknown.
        """
        options = {name: getattr(self, name) for name in _OPTIONS[self.kind]}
        made = models.BatchEnsemble if self.kind == "batch_ensemble" else models.MIMO
        return made(heads, **options)

    def label(self, heads: int) -> str:
        """A short name for checkpoints: the members and every option that is set."""
        short = {"batch_ensemble": "be", "mimo": "mimo"}[self.kind]
        words = [f"{short}{heads}"]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in ("kind", "heads") and value != field.default:
                words.append(_WORDS.get(field.name, "{}").format(value))
        return "-".join(words)


_WORDS = {"bias": "bias_{}", "norm_of": "norm_{}", "repetition": "repeat_{:g}"}


@dataclasses.dataclass(frozen=True)
class Towers:
    """The settings of a click model, the network `click`, beyond `features`.

    Attributes:
        embedding_dim: length of a field's embedding.
        shared_embeddings: all towers read the same tables.
        wide: add a linear part to every tower.
        component_fields: fields that each component sees, by position; empty is all.
    """

    embedding_dim: int = 8
    shared_embeddings: bool = False
    wide: bool = False
    component_fields: tuple[tuple[int, ...], ...] = ()


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Which network.

    Attributes:
        name: one of `churn_jax.models.available()`; `click` of a study in one pass
            (`TrainConfig.one_pass`); or `package.module:name` of a network of your own
            in any form that `churn_jax.ensembles.as_network` takes.
            The other settings are fields of a Linen module's class with `num_classes`;
            all other forms take `inputs` alone.
        features: hidden widths of the MLP, or of a click model's towers; empty keeps
            the network's own.
        dtype: compute dtype, `float32` or `bfloat16`; weights stay float32.
        remat: recompute activations in the backward pass (all but `mlp` and `lenet5`).
        init: how the MLP's kernels start, `he`, `uniform` or `truncated_normal`; empty
            keeps the network's own.
        inputs: columns of the flattened example (of an image in row, column, channel
            order) that an MLP sees; empty is all of them.
        sharing: how the members of a method share weights; None if they do not.
        dropout: share of the last dense layer's inputs that are dropped in training
            (of a VGG also of the layer's before it). ELODI's row with 0.2 does not say
            where it drops; the place is our choice. Of a text network also of its
            embeddings, attention weights and branches; 0 keeps the network's own.
        activation: `relu`, `smelu:0.5` or another name that
            `churn_jax.models.activation` takes, also of a click model's towers; empty
            keeps the network's own.
        vocabulary_size: number of token ids of a text network; 0 keeps its own.
        pretrained: local Hugging Face folder whose weights every network starts from,
            see `churn_jax.models.load_pretrained`; replicas then differ in the last
            layer only, where the folder's is of another number of classes.
        towers: towers of a click model; None for all other networks.
    """

    name: str = "mlp"
    features: tuple[int, ...] = ()
    dtype: str = "float32"
    remat: bool = False
    init: str = ""
    inputs: tuple[int, ...] = ()
    sharing: Sharing | None = None
    dropout: float = 0.0
    vocabulary_size: int = 0
    pretrained: str = ""
    towers: Towers | None = None
    activation: str = ""

    def heads(self, members: int) -> int:
        """How many of a method's members one network yields.

        Raises:
            ValueError: `members` is not a multiple of it.

        Example:
            >>> ModelConfig(sharing=Sharing(heads=4)).heads(8), ModelConfig().heads(8)
            (4, 1)
        """
        if self.sharing is None:
            return 1
        heads = self.sharing.heads or members
        if members % heads:
            raise ValueError(
                f"{members} members cannot be shared out among networks of {heads} "
                "(sharing.heads)"
            )
        return heads

    def build(self, num_classes: int, members: int = 1) -> ensembles.Network:
        """The `Network`.

        Args:
            num_classes: C.
            members: members of the method; with `sharing` the network yields
                `heads(members)`.

        Raises:
            ValueError: unknown name, dtype or an option the network lacks, columns
                that cannot be, or a folder of other weights.
        """
        check_choice("model dtype", self.dtype, DTYPES)
        if self.towers is not None and self.name != "click":
            raise ValueError(f"towers are of a click model; got {self.name!r}")
        if self.name == "click":
            raise ValueError(
                "a click model learns in one pass over clicks, by `churn-jax study` "
                "without --dry-run or by churn_jax.training.click_run"
            )
        if self.inputs and self.name != "mlp":
            raise ValueError(
                f"inputs are columns, which an mlp sees; got {self.name!r}"
            )
        given = {
            "dtype": jnp.dtype(self.dtype) if self.dtype != "float32" else None,
            "features": self.features,
            "remat": self.remat,
            "kernel_init": self.init,
            "vocabulary_size": self.vocabulary_size,
            "dropout": self.dropout,
            "activation": self.activation,
        }
        overrides: dict[str, Any] = {k: v for k, v in given.items() if v}
        # The shapes of a checkpoint do not tell how its weights started, what was
        # dropped in training, the activation, nor how members share them; the name
        # does.
        dropped = f"dropout{self.dropout:g}" if self.dropout else ""
        words = [self.name, self.init, dropped, self.activation]
        if self.sharing is not None:
            heads = self.heads(members)
            overrides["layers"] = self.sharing.layers(heads)
            words.append(self.sharing.label(heads))
        name = "-".join(filter(None, words))
        own = models.MODELS.get(self.name)
        if own is None or models.is_family(own):
            module = models.create(self.name, num_classes=num_classes, **overrides)
            network = _wrapped(module, name)
            if self.pretrained:
                files = ((p.name, p.stat()) for p in Path(self.pretrained).glob("*"))
                stamps = sorted((n, s.st_size, s.st_mtime_ns) for n, s in files)
                loaded = _loaded(self.pretrained, tuple(stamps), module)
                network = ensembles.starting_from(
                    network,
                    loaded.variables,
                    name=f"{network.name}-pretrained_{loaded.fingerprint}",
                    note=loaded.note,
                )
        elif overrides or self.pretrained:
            named = [*overrides, *(["pretrained"] if self.pretrained else [])]
            raise ValueError(
                f"{self.name} is a network as it is, without settings (a Linen class "
                f"with num_classes has its fields); got {', '.join(named)}"
            )
        else:
            network = ensembles.as_network(own, num_classes, name=self.name)
        return ensembles.with_inputs(network, self.inputs) if self.inputs else network

    def click_model(
        self, sizes: tuple[int, ...], numeric: int, method: Method
    ) -> models.ClickModel:
        """The `ClickModel` of clicks; a gate where the method deploys one.

        Args:
            sizes: rows of each field's table.
            numeric: number of numeric features.
            method: whose members are the towers.

        Raises:
            ValueError: the numbers do not fit each other.

        Example:
            >>> from churn_jax.methods import ERM
            >>> ModelConfig("click", features=(8,)).click_model((10, 4), 2, ERM()).rows
            14
        """
        given = {"features": self.features, "activation": self.activation}
        ours = ModelConfig(self.name, towers=self.towers, **given)
        if ours != self:
            fields = (field.name for field in dataclasses.fields(self))
            unread = (x for x in fields if getattr(self, x) != getattr(ours, x))
            raise ValueError(
                "a click model has features, activation and towers; leave out "
                f"{', '.join(unread)}"
            )
        own: dict[str, Any] = dataclasses.asdict(self.towers or Towers())
        own |= {name: value for name, value in given.items() if value}
        gate = method.deploy == "gate"
        return models.ClickModel(
            sizes, numeric, components=method.members, gate=gate, **own
        )


# Equal networks are one object, so that what is traced of one is known of all.
@functools.lru_cache(maxsize=16)
def _wrapped(module: Any, name: str) -> ensembles.Network:
    return ensembles.from_linen(module, name=name)


# The networks of a study's rows are built several times; they share one copy.
@functools.lru_cache(maxsize=4)
def _loaded(folder: str, stamps: tuple, module: Any) -> Pretrained:
    del stamps
    return models.load_pretrained(folder, module)


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
