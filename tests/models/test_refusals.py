"""What networks refuse: fields that make no network, inputs that are not theirs."""

import jax
import numpy as np
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
        (LeNet5, {"layout": "nchw"}, "auto, nhwc, banded; got 'nchw'"),
        (ResNet, {"depth": 18}, r"6 n \+ 2.*got 18"),
        (ResNet, {"depth": 20, "widths": (16, 32)}, "numbers that do not decrease"),
        (ResNet, {"depth": 20, "widths": (16, 8, 32)}, "numbers that do not decrease"),
        (WideResNet, {"depth": 26}, r"6 n \+ 4.*got 26"),
        (WideResNet, {"depth": 28, "widen": 0}, "widen must be at least 1; got 0"),
        (ImageNetResNet, {"block": "wide"}, "one of basic, bottleneck; got 'wide'"),
        (ImageNetResNet, {"stride_at": 3}, r"one of 3x3, 1x1; got 3"),
        (ImageNetResNet, {"stages": ()}, r"at least 1; got \(\)"),
        (ResNetV2, {"stages": (3, 0)}, r"at least 1; got \(3, 0\)"),
        (ResNetV2, {"width": 0}, "at least 1; got 0"),
        (DenseNet, {"blocks": (6, 0)}, r"blocks must be numbers .* \(6, 0\)"),
        (DenseNet, {"growth": 0}, "growth must be at least 1; got 0"),
        (VGG, {"stages": ()}, r"stages must be numbers of convolutions, .* got \(\)"),
        (VGG, {"hidden": 0}, "grid and hidden must be at least 1; got 7 and 0"),
        (Swin, {"attention_heads": (1,)}, r"heads must be 2 divisors .* got \(1,\)"),
        (Swin, {"attention_heads": (3, 2)}, r"\(4, doubled .*\); got \(3, 2\)"),
        (Swin, {"stages": (2, 0)}, r"at least 1; got \(2, 0\)"),
        (Swin, {"drop_path": 1.0}, "drop_path must be at least 0 and below 1; got 1.0"),
        (Bert, {"pooling": "last"}, "first, mean; got 'last'"),
        (Bert, {"attention_heads": 3}, "width 8 cannot be divided among 3 heads"),
        (BatchEnsemble, {"size": 0}, "at least 1 member; got 0"),
        (BatchEnsemble, {"fast_weights": "ones"}, "one of normal, signs; got 'ones'"),
        (BatchEnsemble, {"bias": "both"}, "one of member, shared, none; got 'both'"),
        (BatchEnsemble, {"norm_of": "none"}, "one of shared, member; got 'none'"),
        (BatchEnsemble, {"batches": "cut"}, "one of tiled, split; got 'cut'"),
        (MIMO, {"size": 0}, "at least 1 member; got 0"),
        (MIMO, {"repetition": 1.5}, "0 to 1; got 1.5"),
    ],
)
def test_impossible_fields_are_refused(network, fields, message):
    usual = {Bert: _BERT, Swin: _SWIN, BatchEnsemble: {"size": 2}, MIMO: {"size": 2}}
    with pytest.raises(ValueError, match=message):
        network(**{**usual.get(network, {"num_classes": 10}), **fields})


@pytest.mark.parametrize(
    ("model", "x", "message"),
    [
        (LeNet5(10), np.zeros((2, 8, 8, 1), "f4"), r"at least 12 x 12.*8, 8, 1"),
        (VGG(2, (1, 1, 1)), np.zeros((1, 7, 28, 1), "f4"), r"8 x 8 .*1, 7, 28"),
        (Bert(**_BERT), np.zeros((2, 9), int), r"1 to 8 columns .*2, 9"),
    ],
)
def test_inputs_of_another_size_are_refused(model, x, message):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(model.init, jax.random.key(0), x)
