import pytest

from churn_jax.training import MeshShape, Seeds, TrainConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": 0}, "replicas must be at least 1; got 0"),
        ({"epochs": 0}, "epochs must be at least 1; got 0"),
        ({"batch_size": -3}, "batch_size must be at least 1; got -3"),
        ({"eval_batch_size": 0}, "eval_batch_size must be at least 1"),
        ({"eval_every_epochs": 0}, "eval_every_epochs must be at least 1"),
        ({"replicas": 3, "seed_numbers": (1, 2)}, "3 numbers, one per replica; got 2"),
        ({"mapping": "pmap"}, "auto, vmap, unroll, loop; got 'pmap'"),
        ({"sample": "half"}, "all, bootstrap; got 'half'"),
        ({"weights": "average"}, "one of last, best; got 'average'"),
        ({"ema_decay": 1.0}, "ema_decay must be at least 0 and below 1; got 1.0"),
        ({"ema_decay": -0.1}, "below 1; got -0.1"),
        ({"ema_decay": float("nan")}, "below 1; got nan"),
        ({"replicas": 3, "mesh": MeshShape(replica=2)}, "3 replicas cannot be sharded"),
        ({"batch_size": 10, "mesh": MeshShape(data=4)}, "10 is not divisible.*axis, 4"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**options)


def test_seed_numbers_count_from_zero_unless_given():
    assert TrainConfig(replicas=3).numbers == (0, 1, 2)
    assert TrainConfig(replicas=3, seed_numbers=(7, 7, 9)).numbers == (7, 7, 9)


@pytest.mark.parametrize("factor", ["init", "order", "sample"])
def test_only_augmentation_can_be_off(factor):
    assert Seeds(augment="off").augment == "off"
    with pytest.raises(ValueError, match=f"seeds.{factor} .*fixed, varied; got 'off'"):
        Seeds(**{factor: "off"})
