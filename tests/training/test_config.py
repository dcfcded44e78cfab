import pytest

from churn_jax.training import MeshShape, OptimizerConfig, Seeds, TrainConfig

BAD = {
    TrainConfig: [
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
    OptimizerConfig: [
        ({"name": "adan"}, r"sgd, adam, adagrad, or .*name; got 'adan'; did you mean"),
        ({"schedule": "poly"}, "flat_then_linear; got 'poly'"),
        ({"decay": "l1"}, "l2, decoupled; got 'l1'"),
        ({"decay_on": "biases"}, "kernels, all; got 'biases'"),
        ({"momentum": 1.0}, r"at least 0 and below 1; got 1.0"),
        ({"member_rates": (1.0, -1.0)}, r"not negative; got \(1.0, -1.0\)"),
        ({"member_rates": (float("nan"),)}, "must be finite"),
        ({"member_algorithms": ("sgd", "lion")}, "of sgd, adam, adagrad; got 'lion'"),
        ({"fast_rate": -0.5}, "fast_rate must be finite and not negative; got -0.5"),
        ({"flat_until": 0.9}, r"flat_until \(0.9\) must be below linear_until"),
    ],
    Seeds: [
        ({factor: "off"}, f"seeds.{factor} .*fixed, varied; got 'off'")
        for factor in ("init", "order", "sample")  # augmentation can be off
    ],
}


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [(kind, *row) for kind, rows in BAD.items() for row in rows],
)
def test_bad_options_are_named(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_seed_numbers_count_from_zero_unless_given():
    assert TrainConfig(replicas=3).numbers == (0, 1, 2)
    assert TrainConfig(replicas=3, seed_numbers=(7, 7, 9)).numbers == (7, 7, 9)
