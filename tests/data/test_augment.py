"""The augmentation against NumPy, and where its randomness comes from."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from churn_jax.data.augment import Augmentation, augment, normalize
from tests.devices import over_devices, spread
from tests.refusals import refusals

ALL = Augmentation(pad_crop=1, shift=2, flip=True)
SEEDS = np.arange(24)


def keys_of(seeds):
    return jax.vmap(jax.random.key)(seeds)


@partial(jax.jit, static_argnums=2)
def augmented(images, seeds, policy):
    """Images by keys of these seeds, and the bits that those keys give."""
    bits = jax.vmap(lambda key: jax.random.bits(key, (5,), jnp.uint32))
    return augment(images, keys_of(seeds), policy), bits(keys_of(seeds))


def _images(rng, shape=(24, 6, 7, 3), dtype=np.uint8):
    return rng.integers(1, 256, shape).astype(dtype)


def _reference(images, draws, policy):
    """Pad, crop, shift and flip with NumPy slices, from the documented draws."""
    out = np.empty_like(images)
    height, width = images.shape[1:3]
    p, s = policy.pad_crop, policy.shift
    for i, (image, bits) in enumerate(zip(images, np.asarray(draws, np.int64))):
        y, x = bits[0] % (2 * p + 1), bits[1] % (2 * p + 1)
        padded = np.pad(image, ((p, p), (p, p), (0, 0)))
        image = padded[y : y + height, x : x + width]
        y, x = bits[2] % (2 * s + 1), bits[3] % (2 * s + 1)
        padded = np.pad(image, ((s, s), (s, s), (0, 0)), mode="edge")
        image = padded[y : y + height, x : x + width]
        if policy.flip and bits[4] >= 2**31:
            image = image[:, ::-1]
        out[i] = image
    return out


@pytest.mark.parametrize(
    ("policy", "dtype"),
    [
        (ALL, np.uint8),
        (ALL, np.float32),
        (Augmentation(flip=True), np.uint8),
        (Augmentation(pad_crop=9), np.uint8),  # wider than the image: may be all black
    ],
    ids=str,
)
def test_equals_numpy_exactly(rng, policy, dtype):
    images = _images(rng, dtype=dtype)
    out, draws = augmented(images, SEEDS, policy)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, _reference(images, draws, policy))


@pytest.mark.parametrize("shape", [(24, 6, 7, 3), (24, 500)])
def test_a_share_of_values_is_dropped_after_they_moved(rng, shape):
    images = _images(rng, shape)
    moves = ALL if len(shape) == 4 else Augmentation()
    moved = np.asarray(augmented(images, SEEDS, moves)[0])
    policy = dataclasses.replace(moves, drop=0.3)
    out = np.asarray(augmented(images, SEEDS, policy)[0])
    assert out.dtype == images.dtype
    kept = out != 0
    np.testing.assert_array_equal(out, np.where(kept, moved, 0))
    share = (moved != 0)[~kept].sum() / (moved != 0).sum()
    assert abs(share - 0.3) < 4 * np.sqrt(0.21 / out.size)
    # Two values share a random word, and are dropped independently.
    there = (moved != 0).reshape(-1, 2).all(1)
    first, second = kept.reshape(-1, 2)[there].T
    same = np.mean(first == second)
    assert abs(same - 0.58) < 4 * np.sqrt(0.58 * 0.42 / first.size)


def test_a_share_below_1_never_drops_everything():
    wide = jnp.ones((1, 2**20))
    assert augment(wide, keys_of(SEEDS[:1]), Augmentation(drop=0.999995)).any()


def test_policy_that_is_off_returns_its_input(rng):
    images = jnp.asarray(_images(rng))
    assert augment(images, keys_of(SEEDS), Augmentation()) is images
    assert Augmentation().is_off
    assert not Augmentation(shift=1).is_off


def test_an_image_depends_on_its_own_key_and_not_on_its_place_in_the_batch(rng):
    images, order = _images(rng), rng.permutation(24)
    whole = np.asarray(augmented(images, SEEDS, ALL)[0])
    moved, _ = augmented(images[order], SEEDS[order], ALL)
    np.testing.assert_array_equal(moved, whole[order])
    other = np.asarray(augmented(images, np.where(SEEDS == 3, 99, SEEDS), ALL)[0])
    same = (other == whole).all((1, 2, 3))
    assert same.tolist() == [i != 3 for i in range(24)]


def test_vmap_and_sharded_agree(rng):
    images = _images(rng)
    whole = np.asarray(augmented(images, SEEDS, ALL)[0])

    def one(images, seeds):
        return augment(images, keys_of(seeds), ALL)

    stacked = jax.jit(jax.vmap(one))(images.reshape(4, 6, 6, 7, 3), SEEDS.reshape(4, 6))
    np.testing.assert_array_equal(np.asarray(stacked).reshape(whole.shape), whole)

    args, data = spread((images, SEEDS)), PartitionSpec("data")
    np.testing.assert_array_equal(augmented(*args, ALL)[0], whole)
    manual = over_devices(one, data, data, out=data)
    np.testing.assert_array_equal(manual(*args), whole)


def test_normalize_uint8_and_float_agree_with_numpy(rng):
    images, scaled = _images(rng), jax.jit(normalize)
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
    expected = (images.astype(np.float64) / 255 - mean) / std
    for given in (images, (images / 255).astype(np.float32)):
        out = scaled(given, mean, std)
        assert out.dtype == jnp.float32
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    assert scaled(images.astype(jnp.bfloat16), 0.0, 1.0).dtype == jnp.float32


_POLICY = Augmentation(flip=True)


test_bad_input_is_named = refusals(
    (lambda x, k: augment(x[0], k, _POLICY), r"C\].*\(6, 7, 3\)"),
    (lambda x, k: augment(x, k[:5], _POLICY), r"keys \(5,\)"),
    (lambda x, k: augment(x, jax.random.key_data(k), _POLICY), "typed PRNG"),
    (lambda x, k: normalize(x, (0.1, 0.2), 1.0), r"mean .*\(3,\).*2,"),
    (lambda x, k: normalize(x.astype(jnp.int32), 0.0, 1.0), "int32"),
    (lambda x, k: Augmentation(shift=-1), "shift.*-1"),
    (lambda x, k: Augmentation(pad_crop=1.5), "must be int.*1.5"),
    (lambda x, k: Augmentation(flip=1), "flip must be bool"),
    (lambda x, k: Augmentation(drop=1.0), "drop must be below 1"),
    call=lambda rng, call: call(jnp.asarray(_images(rng)), keys_of(SEEDS)),
    error=(TypeError, ValueError),
    fixtures=["rng"],
)
