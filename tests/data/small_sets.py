"""Sets of TensorFlow Datasets with few records, and one of several odd layouts."""

import numpy as np
import tensorflow_datasets as tfds

IMAGE = tfds.features.Tensor(shape=(4, 4, 3), dtype=np.uint8)


def class_label(classes):
    return tfds.features.ClassLabel(num_classes=classes)


def configs(*names):
    return [tfds.core.BuilderConfig(name=name) for name in names]


class SmallSet(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A set by its `contents`: features by name, and records by split."""

    VERSION = tfds.core.Version("1.0.0")
    keys = None  # supervised ones
    in_order = False

    def contents(self):
        raise NotImplementedError

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(self.contents()[0]),
            supervised_keys=self.keys,
            disable_shuffling=self.in_order,
        )

    def _split_generators(self, dl_manager):
        return {split: enumerate(part) for split, part in self.contents()[1].items()}

    def _generate_examples(self):
        """Not called: the splits are generators already."""


class ChurnProbe(SmallSet):
    """Small sets of several layouts, one per configuration."""

    BUILDER_CONFIGS = configs(
        "three", "no_test", "ragged", "unlabelled", "test_only", "broken"
    )

    def contents(self):
        kind = self.builder_config.name
        features = {"image": IMAGE, "label": class_label(3)}
        if kind == "ragged":
            features["image"] = tfds.features.Tensor(shape=(None, 4, 3), dtype=np.uint8)
        if kind == "unlabelled":
            features["label"] = tfds.features.Tensor(shape=(2,), dtype=np.float32)
        if kind == "no_test":
            features["file_name"] = tfds.features.Text()
        counts = {
            "no_test": {"train": 30, "validation": 9},
            "test_only": {"test": 9},
        }.get(kind, {"train": 30, "validation": 9, "test": 12})
        return features, {s: self.records(kind, n) for s, n in counts.items()}

    def records(self, kind, count):
        """Every image holds its own number."""
        if kind == "broken":
            raise OSError("the archive is damaged\nsecond line")
        for i in range(count):
            image = np.full((4 + i % 2 * (kind == "ragged"), 4, 3), i, np.uint8)
            record = {"image": image, "label": i % 3}
            if kind == "unlabelled":
                record["label"] = np.zeros(2, np.float32)
            yield record | ({"file_name": f"{i}.png"} if kind == "no_test" else {})
