"""What networks refuse: fields that make no network, inputs that are not theirs."""

import jax
import jax.numpy as jnp
import pytest

from churn_jax.models import (
    MIMO,
    MLP,
    VGG,
    BatchEnsemble,
    Bert,
    DenseNet,
    ImageNetResNet,
    LeNet5,
    ResNet,
    ResNetV2,
    Swin,
    WideResNet,
)

_SWIN = {"stages": (2, 1), "attention_heads": (1, 2), "patch": 2, "window": 3}
_SWIN |= {"num_classes": 3, "width": 4}
_BERT = {"num_classes": 3, "vocabulary_size": 20, "positions": 8, "depth": 2}
_BERT |= {"width": 8, "attention_heads": 2, "hidden": 12}


@pytest.mark.parametrize(
    ("network", "fields", "message"),
    [
        (MLP, {"features": (4,), "kernel_init": "ones"}, "he, uniform, .*; got 'ones'"),
        (LeNet5, {"layout": "nchw"}, r"'nhwc', 'banded'.*got 'nchw'"),
        *((ResNet, {"depth": d}, rf"6 n \+ 2.*got {d}") for d in (2, 18, 21)),
        *(
            (ResNet, {"depth": 20, "widths": w}, "three numbers that do not decrease")
            for w in ((16, 32), (16, 8, 32))
        ),
        *((WideResNet, {"depth": d}, rf"6 n \+ 4.*got {d}") for d in (4, 12, 26)),
        (WideResNet, {"depth": 28, "widen": 0}, "widen must be at least 1; got 0"),
        (ImageNetResNet, {"block": "wide"}, r"\('basic', 'bottleneck'\); got 'wide'"),
        (ImageNetResNet, {"stride_at": 3}, r"\('3x3', '1x1'\); got 3"),
        (ImageNetResNet, {"stages": ()}, r"at least 1; got \(\)"),
        (ResNetV2, {"stages": (3, 0)}, r"at least 1; got \(3, 0\)"),
        (ResNetV2, {"width": 0}, "at least 1; got 0"),
        (
            DenseNet,
            {"blocks": (6, 0)},
            r"blocks must be numbers .* \(6, 0\)",
        ),
        (DenseNet, {"growth": 0}, "growth must be at least 1; got 0"),
        (DenseNet, {"dropout": 1.0}, "dropout must be at least 0 and below 1; got 1.0"),
        (VGG, {"stages": ()}, r"stages must be numbers of convolutions, .* got \(\)"),
        (VGG, {"hidden": 0}, "grid and hidden must be at least 1; got 7 and 0"),
        (VGG, {"dropout": -0.1}, "dropout must be at least 0 and below 1; got -0.1"),
        (Swin, {"attention_heads": (1,)}, r"heads must be 2 divisors .* got \(1,\)"),
        (
            Swin,
            {"attention_heads": (3, 2)},
            r"\(4, doubled .*\); got \(3, 2\)",
        ),
        (Swin, {"stages": (2, 0)}, r"at least 1; got \(2, 0\)"),
        (Swin, {"drop_path": 1.0}, "drop_path must be at least 0 and below 1; got 1.0"),
        (Bert, {"pooling": "last"}, "first, mean; got 'last'"),
        (Bert, {"attention_heads": 3}, "width 8 cannot be divided among 3 heads"),
        (Bert, {"dropout": 1.0}, "below 1; got 1.0"),
        (BatchEnsemble, {"size": 0}, "at least 1 member; got 0"),
        (BatchEnsemble, {"fast_weights": "ones"}, "one of normal, signs; got 'ones'"),
        (BatchEnsemble, {"bias": "both"}, "one of member, shared, none; got 'both'"),
        (BatchEnsemble, {"norm_of": "none"}, "one of shared, member; got 'none'"),
        (BatchEnsemble, {"batches": "cut"}, "one of tiled, split; got 'cut'"),
        (MIMO, {"size": 0}, "at least 1 member; got 0"),
        (MIMO, {"repetition": 1.5}, "0 to 1; got 1.5"),
        (MIMO, {"repetition": -0.1}, "0 to 1; got -0.1"),
    ],
)
def test_impossible_fields_are_refused(network, fields, message):
    usual = {Bert: _BERT, Swin: _SWIN, BatchEnsemble: {"size": 2}, MIMO: {"size": 2}}
    with pytest.raises(ValueError, match=message):
        network(**{**usual.get(network, {"num_classes": 10}), **fields})


_IMAGE_NETWORKS = {
    LeNet5(num_classes=10): 28,
    ResNet(depth=8, num_classes=3): 32,
    WideResNet(depth=10, num_classes=3): 32,
    ImageNetResNet(num_classes=3, stages=(1,), width=4): 32,
    ResNetV2(num_classes=3, stages=(1,), width=4): 32,
}


@pytest.mark.parametrize(
    ("model", "x", "error", "message"),
    [
        *(
            (model, jnp.zeros((2, size, size)), ValueError, rf"\(2, {size}, {size}\)")
            for model, size in _IMAGE_NETWORKS.items()
        ),
        *(
            (
                model,
                jnp.zeros((2, size, size, 3), jnp.uint8),
                TypeError,
                "normalised; got uint8",
            )
            for model, size in _IMAGE_NETWORKS.items()
        ),
        (LeNet5(10), jnp.zeros((2, 28, 28)), ValueError, r"\[B, H, W, C\]; got shape"),
        (LeNet5(10), jnp.zeros((2, 8, 8, 1)), ValueError, r"at least 12 x 12.*8, 8, 1"),
        (VGG(2, (1, 1, 1)), jnp.zeros((1, 7, 28, 1)), ValueError, r"8 x 8 .*1, 7, 28"),
        (Swin(**_SWIN), jnp.zeros((2, 9)), ValueError, r"\[B, H, W, C\]; .*\(2, 9\)"),
        (Bert(**_BERT), jnp.zeros((2, 4)), TypeError, "integer ids; got float32"),
        (Bert(**_BERT), jnp.zeros(4, int), ValueError, r"\[B, L\]; got shape \(4,\)"),
        (Bert(**_BERT), jnp.zeros((2, 9), int), ValueError, r"1 to 8 columns .*2, 9"),
        (
            MLP(features=(4,), num_classes=2),
            jnp.zeros(3),
            ValueError,
            r"\[B, D\] or \[B, H, W, C\]; got shape \(3,\)",
        ),
        (
            MLP(features=(4,), num_classes=2),
            jnp.zeros((3, 4), int),
            TypeError,
            "got int32",
        ),
    ],
)
def test_inputs_of_another_kind_are_refused(model, x, error, message):
    with pytest.raises(error, match=message):
        jax.eval_shape(model.init, jax.random.key(0), x)
