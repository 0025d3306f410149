import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.plane.costs import Costs, Curve, seeds_of
from inference.plane.plans import Wire


def wire() -> Wire:
    return Wire(True, (), ())


def steady(level: float, count: int, *, rng: random.Random | None = None) -> list[float]:
    rng = rng or random.Random(3)
    return [level * rng.uniform(0.97, 1.03) for _ in range(count)]


def test_the_warm_up_is_the_first_prediction() -> None:
    costs = Costs()
    costs.seed({1: 0.010, 8: 0.020})
    curve = costs.curve(wire())
    assert curve.typical(1) == 0.010 and curve.worst(8) == 0.020
    assert curve.typical(4.5) == pytest.approx(0.015)


def test_one_spike_moves_nothing() -> None:
    for before in (1, 3, 10, 64, 200):
        curve = Curve({})
        for seconds in steady(0.010, before):
            curve.observe(4, seconds)
        was = curve.worst(4)
        curve.observe(4, 1.0)
        assert curve.worst(4) == pytest.approx(was, rel=0.10)


def test_a_shift_that_stays_is_believed_within_16_runs() -> None:
    for before, after in ((64, 2.0), (500, 1.5), (20, 0.5), (128, 10.0)):
        curve = Curve({})
        for seconds in [*steady(0.010, before), *steady(0.010 * after, 16)]:
            curve.observe(4, seconds)
        assert curve.typical(4) == pytest.approx(0.010 * after, rel=0.06)


def test_every_tenth_run_is_long_and_the_prediction_stays() -> None:
    curve, rng = Curve({}), random.Random(4)
    for index, seconds in enumerate(steady(0.010, 400, rng=rng)):
        curve.observe(1, seconds * 20 if index % 10 == 9 else seconds)
        if index > 20:
            assert curve.worst(1) < 0.013


def test_buckets_not_seen_follow_those_that_were() -> None:
    curve = Curve({1: 0.001, 8: 0.004})
    for seconds in steady(0.010, 20):
        curve.observe(1, seconds)
    assert curve.typical(8) == pytest.approx(0.040, rel=0.1)


@given(
    st.lists(st.tuples(st.integers(1, 64), st.floats(1e-5, 1.0)), min_size=1, max_size=200),
    st.lists(st.integers(1, 100), min_size=2, max_size=10),
)
def test_predictions_never_fall_with_more_rows(seen: list[tuple[int, float]], asked: list[int]) -> None:
    curve = Curve({1: 0.001})
    for rows, seconds in seen:
        curve.observe(rows, seconds)
    for which in (curve.typical, curve.worst):
        told = [which(rows) for rows in sorted(asked)]
        assert told == pytest.approx(sorted(told)) and told[0] > 0
    assert all(curve.worst(rows) >= curve.typical(rows) for rows in asked)


def test_wires_have_their_own_curves_and_strangers_fill_no_memory() -> None:
    costs, one, two = Costs(), wire(), wire()
    costs.curve(one).observe(1, 0.5)
    assert not costs.curve(two).known
    for _ in range(1000):
        costs.curve(wire())
    assert len(costs._curves) <= 256


def test_a_worker_without_figures_seeds_from_its_load() -> None:
    assert seeds_of({}, {"read": 1.0, "first": 0.25}) == {1: 0.25}
    assert seeds_of({"1": 0.1, "8": 0.2, "x": 3.0}, {"first": 0.25}) == {1: 0.1, 8: 0.2}
