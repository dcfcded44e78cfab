"""Public weights to ours and back, and folders of them. No PyTorch wrote these."""

import json
import sys
from functools import cache

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from churn_jax import models
from churn_jax.models import load_pretrained
from churn_jax.models.public_weights import PretrainedError
from tests.models import drawn, public_networks
from tests.refusals import refusals

_HUGGING_FACE = (models.from_hugging_face, models.to_hugging_face)
_TIMM = (models.from_timm, models.to_timm)
_TINY = {
    "basic": (models.ImageNetResNet(3, (2, 1), "basic", 4), *_HUGGING_FACE),
    "bottleneck": (models.ImageNetResNet(3, (2, 1), width=4), *_HUGGING_FACE),
    "v2": (models.ResNetV2(3, (2, 1), width=4), *_TIMM),
    "densenet": (models.DenseNet(3, (2, 1), growth=2, width=4), *_TIMM),
    "vgg": (models.VGG(3, (2, 1), width=2, grid=3, hidden=5), *_TIMM),
    "vgg_bn": (
        models.VGG(3, (1, 2), width=2, grid=2, hidden=5, batch_norm=True),
        *_TIMM,
    ),
}


def _drawn(like, write):
    """As in a file; drawn, so that each is another."""
    empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape, "f4"), like)
    return drawn.weights({name: value.shape for name, value in write(empty).items()})


def _parts(name):
    model, read, write = _TINY[name]
    like = public_networks.variable_shapes(model)
    return _drawn(like, write), like, read, write


@pytest.mark.parametrize("name", _TINY)
def test_there_and_back_is_the_identity(name):
    weights, like, read, write = _parts(name)
    variables = read(weights, like)
    assert jax.tree.structure(variables) == jax.tree.structure(like)
    assert jax.tree.map(np.shape, variables) == jax.tree.map(np.shape, like)
    back = write(variables)
    assert back.keys() == weights.keys() and len(weights) == len(jax.tree.leaves(like))
    for key, value in weights.items():
        np.testing.assert_array_equal(back[key], value)


def test_the_first_dense_layer_of_a_vgg_sees_row_column_channel():
    weights, like, read, _ = _parts("vgg")
    kernel = read(weights, like)["params"]["dense1"]["kernel"]  # [3 * 3 * 4, 5]
    theirs = weights["pre_logits.fc1.weight"]  # [O, I, H, W]
    assert theirs.shape == (5, 4, 3, 3)
    row, column, channel = 2, 0, 3
    flat = (row * 3 + column) * 4 + channel
    np.testing.assert_array_equal(kernel[flat], theirs[:, channel, row, column])


@pytest.mark.parametrize(
    ("name", "places"),
    [
        # convolution, ReLU, convolution, ReLU, maxima, convolution
        ("vgg", ["features.0", "features.2", "features.5"]),
        # convolution, batch norm, ReLU, maxima, convolution, batch norm, ReLU, ...
        ("vgg_bn", ["features.0", "features.4", "features.7"]),
    ],
)
def test_layers_of_a_vgg_are_counted_with_those_that_have_no_weights(name, places):
    weights = _parts(name)[0]
    kernels = {n for n, w in weights.items() if w.ndim == 4 and "features" in n}
    assert kernels == {f"{place}.weight" for place in places}


def read_changed(change):
    weights, like, read, _ = _parts("v2")
    change(weights)
    read(weights, like)


test_weights_that_do_not_fit_are_refused = refusals(
    (lambda w: w.pop("norm.weight"), "the weights lack norm.weight$"),
    (lambda w: w.clear(), "lack head.fc.bias, .*, norm.bias and 51 more"),
    (lambda w: w.update(fc=0), "the network has no place for fc$"),
    (lambda w: w.update({"norm.bias": np.zeros(3)}), r"norm.bias must have shape"),
    call=read_changed,
)


def written(kind, write):
    like = public_networks.variable_shapes(_TINY[kind][0])
    write(jax.tree.map(lambda leaf: np.zeros(leaf.shape), like))


test_variables_of_another_network_are_refused = refusals(
    ("v2", models.to_hugging_face, "not the variables of ImageNetResNet: .*/norm/"),
    ("basic", models.to_timm, "not the variables of ResNetV2: .*shortcut_norm"),
    ("vgg", models.to_hugging_face, "variables of ImageNetResNet: .*/dense1"),
    call=written,
)


@pytest.mark.parametrize("write", [models.to_hugging_face, models.to_timm])
@pytest.mark.parametrize(
    "params",
    [
        {"stage1": {"conv1": {"kernel": np.zeros((1, 1, 1, 1))}}},
        {"stage1_block1": {"gate": {"kernel": np.zeros((1, 1, 1, 1))}}},
        {"kernel": np.zeros((1, 1))},
        {"head": {"gain": np.zeros(2)}},
    ],
)
def test_names_that_no_network_has_are_refused(params, write):
    with pytest.raises(ValueError, match="these are not the variables of"):
        write({"params": params})


_TOKENS = np.array([[3, 9, 4], [7, 0, 0]])
_BERT = {"vocabulary_size": 12, "positions": 4, "depth": 1, "width": 8, "hidden": 6}
_SWIN = {"stages": (1, 1), "attention_heads": (1, 2), "width": 4, "window": 2}
_RESNET = {"stages": (1, 1), "width": 4}
_NETWORKS = {
    "bert": models.create("bert_tiny", num_classes=3, **_BERT),
    "swin": models.create("swin_tiny", num_classes=3, **_SWIN),
    "resnet": models.create("resnet18", num_classes=3, **_RESNET),
}
_CONFIGS = {
    "bert": {
        "vocab_size": 12,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 6,
        "max_position_embeddings": 4,
    },
    "swin": {"embed_dim": 4, "depths": [1, 1], "num_heads": [1, 2], "window_size": 2},
    "resnet": {
        "depths": [1, 1],
        "layer_type": "basic",
        "embedding_size": 4,
        "hidden_sizes": [4, 8],
    },
}
every = pytest.mark.parametrize("kind", _NETWORKS)


@cache
def _weights(kind):
    return _drawn(_shapes(_NETWORKS[kind], kind), models.to_hugging_face)


def _shapes(network, kind):
    x = _TOKENS if kind == "bert" else np.zeros((1, 32, 32, 3), "f4")
    return jax.eval_shape(network.init, jax.random.key(0), x)


def _folder(path, kind, weights, **config):
    path.mkdir(exist_ok=True)
    text = json.dumps({"model_type": kind, **_CONFIGS[kind], **config})
    (path / "config.json").write_text(text)
    save_file(weights, path / "model.safetensors")
    return path


@every
def test_a_folder_is_read_and_gives_back_what_was_written(kind, tmp_path):
    weights = _weights(kind)
    counter = "resnet.embedder.embedder.normalization.num_batches_tracked"
    stored = weights | ({counter: np.array(1)} if kind == "resnet" else {})
    loaded = load_pretrained(_folder(tmp_path, kind, stored), _NETWORKS[kind])
    assert loaded.fresh == () and loaded.note == f"weights of {kind} from {tmp_path}"
    back = models.to_hugging_face(loaded.variables)
    assert back.keys() == weights.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(back[name], value)


def test_names_are_those_of_hugging_face():
    layer, block = "bert.encoder.layer.0.", "swin.encoder.layers.1.blocks.0."
    for kind, name in (
        ("bert", "bert.embeddings.token_type_embeddings.weight"),
        ("bert", layer + "attention.output.LayerNorm.weight"),
        ("bert", layer + "intermediate.dense.bias"),
        ("bert", "bert.pooler.dense.weight"),
        ("swin", block + "attention.self.relative_position_bias_table"),
        ("swin", block + "layernorm_after.bias"),
        ("swin", "swin.encoder.layers.0.downsample.reduction.weight"),
        ("swin", "swin.layernorm.weight"),
        ("resnet", "resnet.encoder.stages.1.layers.0.shortcut.normalization.bias"),
    ):
        assert name in _weights(kind)


@every
def test_other_classes_keep_a_fresh_head_and_the_rest_is_read(kind, tmp_path):
    weights = _weights(kind)
    folder = _folder(tmp_path, kind, weights)
    network = _NETWORKS[kind].clone(num_classes=5)
    loaded = load_pretrained(folder, network)
    assert loaded.fresh == ("head",) and loaded.note.endswith("; fresh: head")
    shapes = _shapes(network, kind)
    ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, "f4"), shapes)
    merged = loaded.into(ones)
    assert jax.tree.structure(merged) == jax.tree.structure(shapes)
    assert (merged["params"]["head"]["kernel"] == 1).all()
    old = models.to_hugging_face(merged)
    for name, value in weights.items():
        if not name.startswith("classifier"):
            np.testing.assert_array_equal(old[name], value)


def test_shards_are_joined_and_half_precision_becomes_float32(tmp_path):
    weights = _weights("bert")
    folder = _folder(tmp_path, "bert", {})
    (folder / "model.safetensors").unlink()
    where = {name: f"part{i % 2}.safetensors" for i, name in enumerate(weights)}
    for part, dtype in (("part0", np.float16), ("part1", ml_dtypes.bfloat16)):
        own = {n: weights[n].astype(dtype) for n in weights if part in where[n]}
        save_file(own, folder / f"{part}.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    loaded = load_pretrained(folder, _NETWORKS["bert"])
    for name, value in models.to_hugging_face(loaded.variables).items():
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, weights[name], rtol=2**-8)

    def refused(message):
        with pytest.raises(PretrainedError, match=message):
            load_pretrained(folder, _NETWORKS["bert"])

    index.write_text(json.dumps({"weight_map": where | {"more": "part0.safetensors"}}))
    refused(r"part0.safetensors lacks more, see model.safetensors.index.json")
    index.write_text(json.dumps({"weight_map": where | {"more": "../part0"}}))
    refused(r"names '../part0', which is not in its folder")
    index.write_text("{}")
    refused(r"index.json has no weight_map")
    index.write_text(json.dumps({"weight_map": where}))
    (folder / "part1.safetensors").unlink()
    refused(r"has no part1.safetensors")


def test_names_of_older_and_bare_models_are_known_and_other_heads_left_out(tmp_path):
    weights = _weights("bert")
    older = {
        name.removeprefix("bert.")
        .replace("LayerNorm.weight", "LayerNorm.gamma")
        .replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in weights.items()
        if "pooler" not in name and "classifier" not in name
    }
    other = {"cls.predictions.bias": np.zeros(12, "f4")}
    other["embeddings.position_ids"] = np.arange(4)[None]
    folder = _folder(tmp_path, "bert", older | other)
    loaded = load_pretrained(folder, _NETWORKS["bert"])
    assert loaded.fresh == ("head", "pooler")
    read = models.to_hugging_face(loaded.variables)
    assert len(read) == len(older)
    for name, value in read.items():
        np.testing.assert_array_equal(value, weights[name])


def test_the_fingerprint_is_of_names_and_values(tmp_path):
    weights = _weights("bert")
    name = "bert.pooler.dense.bias"
    prints = [
        load_pretrained(_folder(tmp_path, "bert", w), _NETWORKS["bert"]).fingerprint
        for w in (weights, weights, weights | {name: weights[name] + 1})
    ]
    assert prints[0] == prints[1] != prints[2]


def test_tensors_that_do_not_fit_are_refused(tmp_path):
    weights = {**_weights("bert"), "bert.more": np.zeros(2)}
    with pytest.raises(PretrainedError, match=f"{tmp_path}: .*no place for bert.more"):
        load_pretrained(_folder(tmp_path, "bert", weights), _NETWORKS["bert"])


def load_other(tmp_path, config, network):
    folder = _folder(tmp_path, "bert", _weights("bert"), **config)
    load_pretrained(folder, _NETWORKS[network])


test_another_architecture_is_refused = refusals(
    ({"model_type": "gpt2"}, "bert", "of 'gpt2'; those of bert, resnet, swin can"),
    ({"model_type": None}, "bert", "of None; those of"),
    ({"model_type": ["bert"]}, "bert", r"of \['bert'\]; those of"),
    ({}, "swin", "'bert', which fit Bert; the network is Swin"),
    ({"num_attention_heads": 4}, "bert", "num_attention_heads 4, .* needs 2"),
    ({"hidden_act": "relu"}, "bert", "hidden_act 'relu', but .* needs 'gelu'"),
    call=load_other,
    error=PretrainedError,
    fixtures=["tmp_path"],
)


def test_a_resnet_with_another_epsilon_is_refused(tmp_path):
    folder = _folder(tmp_path, "resnet", _weights("resnet"))
    with pytest.raises(PretrainedError, match=r"eps 1e-05, but .* needs 0.001"):
        load_pretrained(folder, _NETWORKS["resnet"].clone(epsilon=1e-3))


def test_damaged_and_missing_files_are_refused(tmp_path):
    def refused(message):
        with pytest.raises(PretrainedError, match=message):
            load_pretrained(tmp_path, _NETWORKS["bert"])

    refused("has no config.json; a Hugging Face folder has")
    (tmp_path / "config.json").write_text("{")
    refused("config.json is not JSON")
    (tmp_path / "config.json").write_text("[]")
    refused(r"config.json must be a JSON object; got \[\]")
    folder = _folder(tmp_path, "bert", _weights("bert"))
    whole = (folder / "model.safetensors").read_bytes()
    for size in (len(whole) - 10, 100, 3):
        (folder / "model.safetensors").write_bytes(whole[:size])
        refused(r"model.safetensors cannot be read: ")
    (folder / "model.safetensors").unlink()
    refused("has no model.safetensors")


def test_without_the_package_the_message_names_the_extra(tmp_path, monkeypatch):
    folder = _folder(tmp_path, "bert", _weights("bert"))
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(PretrainedError, match=r"pip install 'churn-jax\[pretrained\]'"):
        load_pretrained(folder, _NETWORKS["bert"])
