"""The public torch models of which ours are copies."""

import numpy as np
import torch
import transformers

from tests.oracles.timm_import import import_timm

timm = import_timm()


def _hugging_face(**fields):
    """Of Hugging Face, without its pretrained weights."""
    config = transformers.ResNetConfig(**fields)
    return transformers.ResNetForImageClassification(config)


def build(name, num_classes):
    """The public counterpart of a network of our zoo, randomly initialised, seeded."""
    torch.manual_seed(0)
    if name == "resnet18":
        return _hugging_face(
            layer_type="basic",
            depths=[2, 2, 2, 2],
            hidden_sizes=[64, 128, 256, 512],
            num_labels=num_classes,
        )
    if name == "resnet50":
        return _hugging_face(num_labels=num_classes)
    if name == "resnet50_stride_1x1":
        return _hugging_face(num_labels=num_classes, downsample_in_bottleneck=True)
    if name == "resnet101":
        return _hugging_face(num_labels=num_classes, depths=[3, 4, 23, 3])
    name = {"resnet_v2_50": "resnetv2_50"}.get(name, name)
    return timm.create_model(name, num_classes=num_classes)


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def shapes(model):
    """PyTorch's name to shape, without the counters."""
    return {
        name: tuple(value.shape)
        for name, value in model.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }


def load(model, weights):
    """Gives the model NumPy weights, each exactly once."""
    tensors = {name: torch.from_numpy(value) for name, value in weights.items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected and all(n.endswith("num_batches_tracked") for n in missing)
    return model


def logits(model, images):
    """Logits `[B, C]` of NHWC images; batch norm as the model's mode says."""
    with torch.no_grad():
        out = model(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    return getattr(out, "logits", out).numpy()


def compare(what, ours, theirs, tolerance=1e-4):
    """Prints and bounds the largest difference, absolute and by the largest value."""
    absolute = float(np.abs(np.asarray(ours) - theirs).max())
    relative = absolute / float(np.abs(theirs).max())
    print(f"\n{what}: largest difference {absolute:.1e}, relative {relative:.1e}")
    assert np.isfinite(theirs).all() and max(absolute, relative) < tolerance


def versions():
    return {m.__name__: m.__version__ for m in (torch, transformers, timm)}
