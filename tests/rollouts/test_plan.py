"""Plans: what is read, what is refused and by which name."""

from typing import Any

import pytest

from console.kit.errors import Invalid
from rollouts.durations import seconds_of, text_of
from rollouts.plan import Analysis, Pause, SetWeight, parse
from rollouts.strategies import BUILT_IN

GATE: dict[str, Any] = {"indicator": "error_ratio", "max": 0.02}


def analysis(**gate: Any) -> list[Any]:
    return [{"setWeight": 10}, {"analysis": {"gates": [{**GATE, **gate}]}}]


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        (0, 0),
        (90, 90),
        ("90", 90),
        ("90s", 90),
        ("5m", 300),
        ("1h", 3600),
        ("1h30m", 5400),
        ("500ms", 0.5),
        (2.5, 2.5),
    ],
)
def test_durations_are_read(raw: object, seconds: float) -> None:
    assert seconds_of(raw) == seconds
    assert seconds_of(text_of(seconds)) == seconds


@pytest.mark.parametrize(
    "raw", [None, True, -1, "", "soon", "5 m", "-5s", "1d", [], "9" * 50, "31h31", "1e3"]
)
def test_what_is_no_duration_is_refused(raw: object) -> None:
    with pytest.raises(ValueError, match=r"duration|days"):
        seconds_of(raw)


def test_the_documented_steps_are_read() -> None:
    plan = parse([{"setWeight": 10}, {"pause": {"duration": "5s"}}, {"pause": {}}, {"pause": None}])
    assert plan.steps == (SetWeight(10), Pause(5.0), Pause(None), Pause(None))
    assert plan.waits_for_person


def test_a_plan_survives_the_way_through_json() -> None:
    for steps in BUILT_IN.values():
        plan = parse(steps)
        assert parse(plan.as_json()) == plan


@pytest.mark.parametrize(("index", "weight"), [(0, 0), (1, 10), (2, 10), (3, 50), (4, 50), (5, 50)])
def test_the_weight_is_that_of_the_last_set_weight(index: int, weight: int) -> None:
    plan = parse([{"pause": {}}, {"setWeight": 10}, {"pause": {}}, {"setWeight": 50}, {"pause": {}}])
    assert plan.weight_at(index) == weight


@pytest.mark.parametrize(
    ("steps", "path"),
    [
        (None, "steps"),
        ([], "steps"),
        ({"setWeight": 10}, "steps"),
        ([{"setWeight": 10}] * 51, "steps"),
        ([3], "steps[0]"),
        ([{}], "steps[0]"),
        ([{"setWeight": 10, "pause": {}}], "steps[0]"),
        ([{"setweight": 10}], "steps[0].setweight"),
        ([{"setWeight": "10"}], "steps[0].setWeight"),
        ([{"setWeight": True}], "steps[0].setWeight"),
        ([{"setWeight": 101}], "steps[0].setWeight"),
        ([{"setWeight": -1}], "steps[0].setWeight"),
        ([{"pause": {"durations": "5m"}}], "steps[0].pause.durations"),
        ([{"pause": {"duration": "soon"}}], "steps[0].pause.duration"),
        ([{"pause": 5}], "steps[0].pause"),
        ([{"setWeight": 10}, {"analysis": {}}], "steps[1].analysis.gates"),
        ([{"setWeight": 10}, {"analysis": {"gates": []}}], "steps[1].analysis.gates"),
        ([{"setWeight": 10}, {"analysis": {"gates": [GATE, GATE]}}], "steps[1].analysis.gates"),
        ([{"analysis": {"gates": [GATE]}}], "steps[0].analysis"),
        ([{"setWeight": 0}, {"analysis": {"gates": [GATE]}}], "steps[1].analysis"),
        (analysis(maximum=1), "steps[1].analysis.gates[0].maximum"),
        (analysis(indicator="errors"), "steps[1].analysis.gates[0].indicator"),
        (analysis(indicator=["error_ratio"]), "steps[1].analysis.gates[0].indicator"),
        (analysis(max=float("nan")), "steps[1].analysis.gates[0].max"),
        (analysis(max="0.02"), "steps[1].analysis.gates[0].max"),
        (analysis(max=2), "steps[1].analysis.gates[0].max"),
        (analysis(failure_limit=3), "steps[1].analysis.gates[0].failure_limit"),
        (analysis(count=0), "steps[1].analysis.gates[0].count"),
        (analysis(interval="0s"), "steps[1].analysis.gates[0].interval"),
        (analysis(fail_above=0.01), "steps[1].analysis.gates[0].fail_above"),
        (analysis(fail_below=0.01), "steps[1].analysis.gates[0].fail_below"),
        (analysis(tolerance=1), "steps[1].analysis.gates[0].tolerance"),
        (analysis(on_no_data="promote"), "steps[1].analysis.gates[0].on_no_data"),
        (analysis(on_no_data={"wait": "5m", "then": "promote"}), "steps[1].analysis.gates[0].on_no_data"),
        (analysis(on_low_evidence={"wait": "x"}), "steps[1].analysis.gates[0].on_low_evidence"),
        (analysis(name=""), "steps[1].analysis.gates[0].name"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_path(steps: Any, path: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse(steps)
    assert path in refused.value.fields


def test_a_gate_without_a_limit_is_refused() -> None:
    with pytest.raises(Invalid) as refused:
        parse([{"setWeight": 10}, {"analysis": {"gates": [{"indicator": "error_ratio"}]}}])
    assert "steps[1].analysis.gates[0]" in refused.value.fields


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(Invalid) as refused:
        parse([{"setWeight": 200}, {"pause": {"duration": "x"}}, {"wait": 1}])
    assert set(refused.value.fields) == {"steps[0].setWeight", "steps[1].pause.duration", "steps[2].wait"}


def test_a_policy_is_abort_pause_wait_or_a_wait_with_an_end() -> None:
    plan = parse(
        analysis(
            on_no_data="abort", on_low_evidence="wait", on_provider_error={"wait": "1m", "then": "abort"}
        )
    )
    step = plan.steps[1]
    assert isinstance(step, Analysis)
    written = step.gates[0].as_json()
    assert written["on_no_data"] == "abort"
    assert written["on_low_evidence"] == {"wait": "5m", "then": "pause"}
    assert written["on_provider_error"] == {"wait": "1m", "then": "abort"}
    assert written["on_inconclusive"] == "pause"
