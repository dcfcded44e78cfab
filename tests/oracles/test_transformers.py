"""Our BERT, Swin and ResNets on files that Hugging Face's own models have written."""

import jax
import numpy as np
import pytest
import torch
import transformers

from churn_jax import models
from tests.models import drawn, public_networks
from tests.oracles import public, refresh

pytestmark = pytest.mark.oracle
_CLASSES = 5

_BERT = {"depth": 2, "width": 32, "attention_heads": 4, "hidden": 48, "positions": 20}
_BERT_SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 20,
}
_SWIN = {"stages": (2, 3), "attention_heads": (2, 4), "width": 16, "window": 4}
_SWIN_SIZES = {
    "embed_dim": 16,
    "depths": [2, 3],
    "num_heads": [2, 4],
    "window_size": 4,
    "image_size": 32,
}


def _moved(model):
    """Kernels that keep activations of order one; nothing else at its default."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "embeddings" in name and "norm" not in name.lower():
                value.normal_()
            elif value.ndim > 1:
                value.normal_(0.0, (2 / value[0].numel()) ** 0.5)
            else:
                value.add_(0.2 * torch.randn_like(value))
        for name, value in model.named_buffers():
            if "running" in name:
                value.add_(torch.rand_like(value))
    return model.eval()


def _bert(**fields):
    config = transformers.BertConfig(num_labels=_CLASSES, **fields)
    return _moved(transformers.BertForSequenceClassification(config))


def _swin(**fields):
    config = transformers.SwinConfig(num_labels=_CLASSES, **fields)
    return _moved(transformers.SwinForImageClassification(config))


def _compare(what, ours, theirs):
    assert np.abs(theirs).max() > 0.1 and np.abs(theirs[0] - theirs[1]).max() > 0.01
    public.compare(what, ours, theirs)


def _texts(vocabulary, length):
    """Token ids of various lengths, padded with 0."""
    generator = np.random.default_rng(0)
    tokens = generator.integers(1, vocabulary, (4, length))
    for row, kept in enumerate((length, length - 1, length // 2, 1)):
        tokens[row, kept:] = 0
    return tokens.astype(np.int32)


@pytest.mark.parametrize(
    ("sizes", "network", "length"),
    [
        (
            _BERT_SIZES,
            models.create(
                "bert_base", num_classes=_CLASSES, vocabulary_size=60, **_BERT
            ),
            13,
        ),
        ({}, models.create("bert_base", num_classes=_CLASSES), 128),
    ],
    ids=["small", "base"],
)
def test_bert_sees_what_the_mask_of_hugging_face_lets_through(
    sizes, network, length, tmp_path
):
    theirs = _bert(**sizes)
    theirs.save_pretrained(tmp_path)
    loaded = models.load_pretrained(tmp_path, network)
    assert loaded.fresh == ()
    tokens = _texts(network.vocabulary_size, length)
    ours = jax.jit(network.apply)(loaded.variables, tokens)
    ids = torch.from_numpy(tokens).long()
    with torch.no_grad():
        expected = theirs(ids, attention_mask=(ids != 0).long()).logits.numpy()
    count = sum(leaf.size for leaf in jax.tree.leaves(loaded.variables))
    assert count == sum(p.numel() for p in theirs.parameters())
    _compare(f"BERT, {count:,} parameters", ours.logits, expected)


@pytest.mark.parametrize(
    ("sizes", "network", "shape"),
    [
        (
            _SWIN_SIZES,
            models.create("swin_tiny", num_classes=_CLASSES, **_SWIN),
            (2, 32, 32, 3),
        ),
        (  # 15 x 10 patches, then 8 x 5: padded windows and an odd merge
            _SWIN_SIZES,
            models.create("swin_tiny", num_classes=_CLASSES, **_SWIN),
            (2, 60, 38, 3),
        ),
        ({}, models.create("swin_tiny", num_classes=_CLASSES), (2, 224, 224, 3)),
    ],
    ids=["small", "padded", "tiny"],
)
def test_swin_shifts_windows_as_hugging_face_does(sizes, network, shape, tmp_path):
    theirs = _swin(**sizes)
    theirs.save_pretrained(tmp_path)
    loaded = models.load_pretrained(tmp_path, network)
    images = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    ours = jax.jit(network.apply)(loaded.variables, images)
    with torch.no_grad():
        expected = theirs(torch.from_numpy(images.transpose(0, 3, 1, 2)))
    count = sum(leaf.size for leaf in jax.tree.leaves(loaded.variables))
    assert count == sum(p.numel() for p in theirs.parameters())
    _compare(f"Swin, {count:,} parameters", ours.logits, expected.logits.numpy())


def test_names_in_memory_and_in_the_file_are_both_known(tmp_path):
    theirs = _swin(**_SWIN_SIZES)
    theirs.save_pretrained(tmp_path)
    network = models.create("swin_tiny", num_classes=_CLASSES, **_SWIN)
    loaded = models.load_pretrained(tmp_path, network)
    weights = {name: value.numpy() for name, value in theirs.state_dict().items()}
    read = models.from_hugging_face(weights, loaded.variables)
    jax.tree.map(np.testing.assert_array_equal, read, loaded.variables)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_resnet_in_one_file_or_several_gives_the_same_logits(sharded, tmp_path):
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[32, 64], depths=[1, 2], num_labels=_CLASSES
    )
    theirs = _moved(transformers.ResNetForImageClassification(config))
    size = "20KB" if sharded else "1GB"
    theirs.save_pretrained(tmp_path, max_shard_size=size)
    assert (tmp_path / "model.safetensors.index.json").is_file() == sharded
    network = models.create("resnet50", num_classes=_CLASSES, stages=(1, 2), width=8)
    loaded = models.load_pretrained(tmp_path, network)
    images = np.random.default_rng(1).normal(size=(2, 48, 40, 3)).astype(np.float32)
    ours = jax.jit(network.apply)(loaded.variables, images)
    with torch.no_grad():
        expected = theirs(torch.from_numpy(images.transpose(0, 3, 1, 2)))
    _compare("ResNet", ours.logits, expected.logits.numpy())


@pytest.mark.parametrize(
    ("model", "fresh"),
    [
        (transformers.BertModel, ("head",)),
        (transformers.BertForMaskedLM, ("head", "pooler")),
        (transformers.BertForPreTraining, ("head",)),
    ],
)
def test_models_with_other_heads_give_their_encoder(model, fresh, tmp_path):
    theirs = _moved(model(transformers.BertConfig(**_BERT_SIZES)))
    theirs.save_pretrained(tmp_path)
    network = models.create("bert_base", num_classes=3, vocabulary_size=60, **_BERT)
    loaded = models.load_pretrained(tmp_path, network)
    assert loaded.fresh == fresh and loaded.note.endswith(", ".join(fresh))
    encoder = getattr(theirs, "bert", theirs).state_dict()
    np.testing.assert_array_equal(
        loaded.variables["params"]["layer2"]["feed_forward"]["dense1"]["kernel"],
        encoder["encoder.layer.1.intermediate.dense.weight"].numpy().T,
    )


_COPIES = public_networks.NETWORKS | public_networks.LARGE


def _both(name):
    """The torch model, ours and its variables.

    Kernels as the public library draws them, batch norm and biases off their defaults.
    """
    theirs = public.build(name, public_networks.CLASSES)
    weights = {
        key: value.numpy().copy()
        for key, value in theirs.state_dict().items()
        if value.ndim > 1
    }
    flat = {k: s for k, s in public.shapes(theirs).items() if len(s) == 1}
    weights |= drawn.weights(flat)
    public.load(theirs, weights)
    ours = public_networks.build(name)
    like = public_networks.variable_shapes(ours)
    return theirs, ours, _COPIES[name].read(weights, like)


@pytest.mark.parametrize("name", public_networks.NETWORKS)
def test_golden_logits_are_what_torch_gives_here(name):
    committed, now = public_networks.golden(name), refresh.record(name)
    print(f"\n{name}: {now['parameters']:,} parameters, {now['versions']}")
    for key in ("parameters", "weights"):
        assert committed[key] == now[key]
    public.compare(f"{name}, committed", committed["logits"], np.array(now["logits"]))


@pytest.mark.parametrize("name", _COPIES)
def test_logits_at_224_pixels(name):
    theirs, ours, variables = _both(name)
    images = drawn.images((2, 224, 224, 3))
    logits = jax.jit(ours.apply)(variables, images).logits
    public.compare(f"{name}, 224 pixels", logits, public.logits(theirs.eval(), images))


@pytest.mark.parametrize("name", _COPIES)
def test_a_training_step_sees_the_same_batch_statistics(name):
    theirs, ours, variables = _both(name)
    images = drawn.images((4, 128, 96, 3))

    def train(variables, images):
        return ours.apply(variables, images, train=True, mutable=["batch_stats"])

    output, updated = jax.jit(train)(variables, images)
    logits = public.logits(theirs.train(), images)
    # ResNet-101 differs by 2.3e-4 here and by 1e-6 in evaluation. It is rounding: torch
    # in float32 is 1.8e-4 from torch in float64, after a hundred batches' moments.
    tolerance = 1e-3 if name == "resnet101" else 1e-4
    public.compare(f"{name}, training", output.logits, logits, tolerance)
    moved = _COPIES[name].write({"params": variables["params"], **updated})
    means = [key for key in moved if key.endswith("running_mean")]
    assert bool(means) == ("batch_stats" in variables)
    if not means:
        return
    state = theirs.state_dict()
    public.compare(
        f"{name}, {len(means)} running means",
        np.concatenate([moved[key] for key in means]),
        np.concatenate([state[key].numpy() for key in means]),
    )
