"""The embedded default: 1,797 hand-written digits of 8x8 pixels.

Source: "Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak, 1998,
UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, licensed CC BY 4.0
(https://creativecommons.org/licenses/by/4.0/). `digits.npz` holds the repository's test
file, `optdigits.tes`, in its order, unchanged but for the compression: `images`
`[1797, 8, 8]` uint8 from 0 to 16, and `labels [1797]`. The original images were binary
32x32; each pixel here counts the ink of a 4x4 block.
"""

from importlib import resources

import numpy as np

from churn_jax.data.splits import Split, check_split, hold_out

NUM_CLASSES = 10
TEST_SIZE = 897
VALIDATION_SIZE = 200  # default of `load("digits")`; 700 are left to train on


def load_digits() -> dict[str, Split]:
    """The digits as `train` (900) and `test` (897), disjoint and fixed.

    Pixel values are 16 times the original 0..16, clipped to 255, so that they fill the
    range of uint8: ink of 15 is 240, full ink 255. The test examples are the last 897
    of the package's fixed permutation, so writers occur on both sides. The id of an
    example, `digits/<row>`, tells its row in the original file.

    Returns:
        Two splits with images `[N, 8, 8, 1]` uint8, in the order of the original file.

    Example:
        >>> {name: len(split) for name, split in load_digits().items()}
        {'train': 900, 'test': 897}
    """
    path = resources.files("churn_jax.data").joinpath("digits.npz")
    with path.open("rb") as file, np.load(file) as stored:
        ink, labels = stored["images"], stored["labels"]
    images = np.minimum(ink.astype(np.int32) * 16, 255).astype(np.uint8)[..., None]
    ids = np.array([f"digits/{row}" for row in range(len(labels))])
    kept, held = hold_out(len(labels), TEST_SIZE)
    return {
        name: check_split(name, images[rows], labels[rows], ids[rows])
        for name, rows in (("train", np.sort(kept)), ("test", held))
    }
