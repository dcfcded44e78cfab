"""What processes that train together compare before they begin."""

from churn_jax.studies.processes import check_agreement, check_shared_folder


def test_one_process_always_agrees(tmp_path):
    check_agreement({"a": object()})  # not even read
    check_shared_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []
