"""Teachers in the engine: cached, calibrated, with old models, as directions."""

import dataclasses
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax.data import stream
from churn_jax.ensembles import Group, from_linen
from churn_jax.methods import ELODI, ERM, OneToOneDistillation
from churn_jax.training import MeshShape
from churn_jax.training.examples import example_of
from churn_jax.training.partition import DATA, MEMBER, REPLICA
from churn_jax.training.program import make_program
from churn_jax.training.session import open_session
from churn_jax.training.teachers import Teacher, TeacherProgram, Teachers, one_by_one
from tests.refusals import refusals
from tests.training import tiny
from tests.training.tiny import SMALL, WIDTH

IMAGES = jnp.asarray(np.random.default_rng(1).normal(size=(6, 8, 8, 1)), jnp.float32)


@functools.cache
def trained(members=3):
    return tiny.teacher(members, 2, SMALL)


@functools.cache
def older():
    return tiny.teacher(1, 2, SMALL)


@functools.cache
def linear():
    return tiny.teacher(2, 2, tiny.LINEAR)


def taught_by(teachers, replica=1, *, mapping="vmap", rows=None):
    """The `Teacher` of one replica on one device."""
    groups = (*teachers.own_groups(), *teachers.old_groups())
    cached = teachers.cached is not None
    program = TeacherProgram(groups, False, mapping, len(teachers.old), cached)
    variables = jax.tree.map(lambda x: x[replica], teachers.variables())
    return Teacher(program, one_by_one(program, variables), 1, rows)


def answers(teacher, images=IMAGES, **options):
    """What a teacher answers, compiled as a whole."""
    return jax.jit(lambda images: teacher(images, **options))(images)


@functools.cache
def member_logits():
    """`[R, T, B, C]` of `trained`, network by network."""
    (variables,) = trained().teacher_variables()
    both = jax.vmap(lambda v: SMALL.apply(v, IMAGES, train=False)[0].logits)
    return np.asarray(jax.jit(jax.vmap(both))(variables))


class TestTheTeacher:
    def test_unrolled_ones_answer_alike_and_one_can_be_picked(self):
        teacher = taught_by(Teachers(trained()), mapping="unroll")
        assert isinstance(teacher.variables[0], list)
        np.testing.assert_allclose(answers(teacher), member_logits()[1], atol=1e-5)
        picked = answers(teacher, pick=2)
        np.testing.assert_allclose(picked, member_logits()[1, 2], atol=1e-5)

    def test_calibrated_members_are_divided_by_their_temperatures(self):
        temperatures = np.float32([[1, 2, 3], [0.5, 4, 8]])
        teacher = taught_by(Teachers(trained(), temperatures=temperatures))
        expected = member_logits()[1] / temperatures[1][:, None, None]
        np.testing.assert_allclose(answers(teacher), expected, atol=1e-5)
        np.testing.assert_allclose(answers(teacher, pick=1), expected[1], atol=1e-5)
        two = temperatures[:, :2]
        few = taught_by(Teachers(trained(), members=2, temperatures=two))
        np.testing.assert_allclose(answers(few), expected[:2], atol=1e-5)

    @pytest.mark.slow
    def test_temperatures_are_shared_out_among_networks_of_several_members(self):
        shared = tiny.teacher(2, 2, tiny.hashed(from_linen(tiny.SharedNet(2))))
        temperatures = np.arange(1.0, 9.0, dtype=np.float32).reshape(2, 4)
        plain = taught_by(Teachers(shared))(IMAGES)
        cooled = taught_by(Teachers(shared, temperatures=temperatures))(IMAGES)
        expected = plain / temperatures[1][:, None, None]
        np.testing.assert_allclose(cooled, expected, atol=1e-5)

    def test_every_point_of_a_sweep_has_the_same_teachers(self):
        cached = np.random.default_rng(0).normal(size=(2, 1, 4, 5))
        for teachers in (
            Teachers(trained(), (older(),), temperatures=np.ones((2, 3), np.float32)),
            Teachers(trained(), (older(),), cached=cached),
        ):
            three = dataclasses.replace(teachers, repeats=3)
            assert three.identity() == teachers.identity()

            def check(many, once):
                np.testing.assert_array_equal(many, np.concatenate([once] * 3))

            jax.tree.map(check, three.variables(), teachers.variables())


class TestOldModels:
    def test_they_answer_next_to_the_teacher_and_alone(self):
        (variables,) = older().teacher_variables()
        one = jax.tree.map(lambda x: x[1, 0], variables)
        expected = SMALL.apply(one, IMAGES)[0].logits
        for teachers, size in (
            (Teachers(trained(), (older(),)), 3),
            (Teachers(old=(older(),)), 0),
        ):
            teacher = taught_by(teachers)
            assert (teacher.size, teacher.olds) == (size, 1)
            np.testing.assert_allclose(teacher.old(IMAGES)[0], expected, atol=1e-5)
        with pytest.raises(ValueError, match="there is no teacher, only old models"):
            teacher(IMAGES)

    def test_their_last_layers_give_their_logits_for_their_features(self):
        teacher = taught_by(Teachers(old=(older(), tiny.teacher(1, 2, SMALL))))
        (variables,) = older().teacher_variables()
        outputs = SMALL.apply(jax.tree.map(lambda x: x[1, 0], variables), IMAGES)[0]
        found = teacher.classify(outputs.features)
        assert found.shape == (2, len(IMAGES), tiny.CLASSES)
        np.testing.assert_allclose(found[0], outputs.logits, atol=1e-5)
        wider = jnp.concatenate([outputs.features, 9 * outputs.features], axis=1)
        np.testing.assert_array_equal(teacher.classify(wider), found)
        with pytest.raises(ValueError, match=f"expects {WIDTH} features; got 5"):
            teacher.classify(outputs.features[:, :5])

    def test_an_unknown_last_layer_is_refused(self):
        teacher = taught_by(Teachers(old=(tiny.teacher(1, 2, tiny.LINEAR),)))
        with pytest.raises(ValueError, match="the last layer of function is not known"):
            teacher.classify(jnp.ones((2, WIDTH)))
        with pytest.raises(ValueError, match=r"name one in teaching\.old"):
            taught_by(Teachers(trained())).classify(jnp.ones((2, WIDTH)))


class TestOffline:
    @staticmethod
    @functools.cache
    def cached():
        """The average logits of two linear networks, in float64 by hand."""
        (variables,) = linear().teacher_variables()
        pixels = np.float64(tiny.dataset().train.images) / 255
        x = ((pixels - 0.5) / 0.25).reshape(tiny.EXAMPLES, -1)
        kernels = np.float64(variables["params"]["kernel"])
        logits = np.einsum("nd,rtdc->rtnc", x, kernels)
        return np.float32(logits.mean(axis=1, keepdims=True))

    def test_cached_logits_teach_what_the_networks_teach_that_gave_them(self):
        """Those of the other replica: that logits are given by nobody else is seen."""
        (variables,) = linear().teacher_variables()
        others = (jax.tree.map(lambda x: x[::-1], variables),)
        given = vars(linear()) | {"teacher_variables": lambda: others}
        cached = self.cached()[::-1]
        assert np.abs(cached - self.cached()).max() > 1
        run = tiny.linear_run(ELODI(alpha=0.5, top_k=3), sample="bootstrap")
        ways = Teachers(SimpleNamespace(**given)), Teachers(linear(), cached=cached)
        online, offline = (tiny.stepper(run, taught_by=t).advance(4) for t in ways)
        assert tiny.largest_difference(online.params, offline.params) < 1e-6
        np.testing.assert_allclose(online.sums, offline.sums, rtol=1e-5)

    def test_rows_are_positions_in_the_training_set(self):
        rows = jnp.array([5, 0, 5])
        teacher = taught_by(Teachers(linear(), cached=self.cached()), rows=rows)
        assert teacher.size == 1
        expected = self.cached()[1][:, [5, 0, 5]]
        np.testing.assert_array_equal(teacher(IMAGES[:3]), expected)
        np.testing.assert_array_equal(teacher(IMAGES[:3], pick=0), expected[0])
        with pytest.raises(ValueError, match=r"need the batch's rows \(Batch\.rows\)"):
            taught_by(Teachers(linear(), cached=self.cached()))(IMAGES)

    @pytest.mark.parametrize("axis", [0, 2, 3])
    def test_logits_of_other_replicas_examples_or_classes_are_refused(self, axis):
        run = tiny.make_run(ELODI(), network=tiny.LINEAR, replicas=2)
        cached = np.take(self.cached(), [0], axis)
        with pytest.raises(ValueError, match=r"N, C\], here \[2, 1, 64, 5\]; got \["):
            tiny.session_of(run, taught_by=Teachers(linear(), cached=cached))


@functools.cache
def convolved(mesh, mapping):
    """Three updates with four teachers and an old model."""
    method, options = ELODI(alpha=0.3, mix=0.6, top_k=3), {"mapping": mapping}
    run = tiny.make_run(method, replicas=2, mesh=MeshShape(*mesh), **options)
    teachers = Teachers(trained(4), (older(),))
    stepper = tiny.stepper(run, taught_by=teachers)
    return stepper, stepper.advance(3)


@pytest.mark.slow
def test_a_mesh_computes_what_one_device_computes():
    """Four teachers are sharded over the member axis, the old model is not."""
    stepper, one = convolved((1, 1, 1), "loop")
    assert stepper.session.program.teacher.mapping == "unroll"
    stepper, other = convolved((2, 2, 2), "vmap")
    program = stepper.session.program
    assert program.teacher.sharded and program.replicated
    assert program.teacher.spec == (P(REPLICA, MEMBER), P(REPLICA))
    shardings = [jax.tree.leaves(v)[0].sharding.spec for v in stepper.session.teacher]
    assert shardings == [P(REPLICA, MEMBER), P(REPLICA)]
    for ours, theirs in ((one.params, other.params), (one.sums, other.sums)):
        assert tiny.largest_difference(ours, theirs) < 1e-4


def test_a_teachers_convolutions_decide_the_mapping_as_the_students_do():
    conv, dense = Group(tiny.NETWORK, 2), Group(tiny.LINEAR, 1)
    run = tiny.make_run(ELODI(), network=tiny.LINEAR, mapping="auto", steps_per_call=0)

    def program(*teachers, old=()):
        known = SimpleNamespace(
            cached=None, own_groups=lambda: teachers, old_groups=lambda: old
        )
        return make_program(run, example_of((8, 8, 1), tokens=False), 4, teachers=known)

    for made in (program(conv), program(dense, old=(conv,))):
        found, updates = made
        assert (found.mapping, found.teacher.mapping) == ("loop", "unroll")
        assert not found.convolutional and updates == 1
    found, updates = program(dense)
    assert (found.mapping, found.teacher.mapping, updates) == ("vmap", "vmap", 4)


test_teachers_that_cannot_teach_are_refused = refusals(
    (Teachers, "needs a teacher, an old model or cached logits"),
    (lambda: Teachers(old=(trained(),)), "is trained as one network; teacher trains 3"),
    (lambda: Teachers(old=(older(),), members=1), "temperatures need a teacher"),
    (lambda: Teachers(trained(), members=4), r"group of .* got 4, groups of \[3\]"),
)


def test_a_checkpoint_knows_its_teachers():
    ways = [
        Teachers(trained()),
        Teachers(trained(), members=2),
        Teachers(trained(), (older(),)),
        Teachers(trained(), (older(), older())),
        Teachers(old=(older(),)),
        Teachers(trained(), temperatures=np.ones((2, 3), np.float32)),
        Teachers(trained(), temperatures=np.full((2, 3), 2, np.float32)),
        Teachers(trained(), cached=np.zeros((2, 1, 4, 5), np.float32)),
        Teachers(trained(), cached=np.ones((2, 1, 4, 5), np.float32)),
        Teachers(trained(), cached=np.ones((2, 1, 4, 5), np.float32), targets="ones"),
    ]
    assert len({str(sorted(way.identity().items())) for way in ways}) == len(ways)


TEACHERS = 4
ODS = OneToOneDistillation(
    members=TEACHERS, perturbation="ods", temperature=2.0, step_size=0.05
)
STUDENT = tiny.hashed(from_linen(tiny.SharedNet(4)))


@functools.cache
def drawn_teachers():
    return tiny.teacher(TEACHERS, network=tiny.SMALL)


@functools.cache
def perturbed(mesh, mapping):
    """The states after one update and after five, which compile nothing more."""
    run = tiny.make_run(ODS, network=STUDENT, mesh=MeshShape(*mesh), mapping=mapping)
    stepper = tiny.stepper(run, taught_by=drawn_teachers())
    first = stepper.advance(1)
    with tiny.compilations() as names:
        last = stepper.advance(4)
    assert not [name for name in names if "steps" in name]
    return stepper, first, last


@pytest.mark.slow
def test_perturbed_training_on_a_mesh_is_that_of_one_device():
    """On the mesh, under `vmap`, every replica takes out its own drawn teacher."""
    _, first, last = perturbed((1, 1, 1), "loop")
    stepper, mesh_first, mesh_last = perturbed((2, 2, 2), "vmap")
    program = stepper.session.program
    assert program.teacher.sharded and program.mesh.size == 8
    assert program.replicated
    assert max(np.abs(g).max() for g in jax.tree.leaves(tiny.gradient(first))) > 0.05
    for ours, theirs in (
        (tiny.gradient(mesh_first), tiny.gradient(first)),
        (mesh_last.sums, last.sums),
        (mesh_last.params, last.params),
        (mesh_last.model_state, last.model_state),
    ):
        assert tiny.largest_difference(ours, theirs) < 1e-5


@pytest.mark.slow
@pytest.mark.usefixtures("fully_optimized")
def test_the_direction_costs_one_image_between_members():
    """The drawn teacher's gradient; all else that members exchange is logits."""
    run = tiny.make_run(ODS, network=STUDENT, mesh=MeshShape(2, 2, 2), replicas=4)
    found = tiny.compiled(run, taught_by=drawn_teachers())[2]
    assert {c.axes for c in found} == {(MEMBER,), (DATA,)}
    rows = 2 * tiny.BATCH // 2  # local replicas times local batch
    image, logits = rows * 8 * 8 * 4, rows * TEACHERS * tiny.CLASSES * 4
    between = [c for c in found if c.axes == (MEMBER,)]
    parts = sorted((part for c in between for part in c.parts), reverse=True)
    assert parts[0] == image
    assert parts[1] <= logits < image
    gathered = [c for c in between if c.kind == "all-gather"]
    assert {part for c in gathered for part in c.parts} == {logits}


def test_the_engine_refuses_features_that_would_be_clipped():
    images = tiny.dataset()
    low = images.train.images / np.float32(64) - 2
    part = dataclasses.replace(images.train, images=low)
    features = dataclasses.replace(images, train=part)
    run = tiny.make_run(ODS, network=STUDENT)
    for data in (features, stream(features)):
        with pytest.raises(ValueError, match=r"from -2 to 1\.98.*outside of pixel_ran"):
            open_session(run, data, teacher=drawn_teachers(), mean=0.0, std=1.0)


@pytest.mark.slow
def test_without_teachers_weight_it_is_plain_training_of_the_mean():
    """alpha = 0, whatever is perturbed: the cross-entropy is on clean images."""
    taught = tiny.teacher(2, replicas=2, network=tiny.LINEAR)
    step = {"perturbation": "conf_ods", "step_size": 0.2}
    method = OneToOneDistillation(members=2, alpha=0.0, **step)
    plain = ERM(members=2, over_members="mean")
    states = []
    for one, by in ((method, taught), (plain, None)):
        run = tiny.make_run(one, network=tiny.LINEAR, replicas=2)
        states.append(tiny.stepper(run, taught_by=by).advance(4))
    assert tiny.largest_difference(states[0].params, states[1].params) < 1e-6
    np.testing.assert_allclose(states[0].sums[:, 0], states[1].sums[:, 0], rtol=1e-6)
