"""Progress of a study that is trained."""

from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.training.progress import Display


class StudyDisplay(Display):
    """The selected methods; time left is counted in epochs of one network."""

    def __init__(self, config: StudyConfig, only: tuple[str, ...] = (), **shown: bool):
        """`shown` is given to `Display`."""
        super().__init__(**shown)
        specs = config.select(only)
        self._weights = {
            spec.name: spec.config(config.train).epochs * spec.method.members
            for spec in specs
        }
        self.expect(sum(self._weights.values()), f"all {len(specs)} methods")

    def start(self, spec: MethodSpec, finished: bool) -> None:
        """A method begins, or was finished before."""
        self.begin(
            spec.name,
            spec.label,
            weight=self._weights[spec.name],
            finished_before=finished,
        )
