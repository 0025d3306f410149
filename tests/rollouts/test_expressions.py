"""The golden table of conditions: every row was run on the real engine (facts on Argo's embedded expr)."""

import math
from typing import Any

import pytest

from rollouts.expressions import EvaluationError, SyntaxProblem, evaluate, parse
from rollouts.expressions.lint import on_no_data, on_not_a_number

NAN, INF = math.nan, math.inf
ERROR = "error"

GOLDEN: list[tuple[str, Any, Any]] = [
    ("result[0] >= 0.95", [0.97], True),
    ("result[0] >= 0.95", [NAN], False),
    ("result[0] >= 0.95", [INF], True),
    ("result[0] >= 0.95", [], ERROR),
    ("result[0] < 0.95", [NAN], False),
    ("result >= 0.95", 0.97, True),
    ("result >= 0.95", [0.97], ERROR),
    ("result[0] >= 0.95", 0.97, ERROR),
    ("isNaN(result)", NAN, True),
    ("isNaN(result)", [NAN], ERROR),
    ("isNaN(result[0]) || result[0] >= 0.95", [NAN], True),
    ("len(result) == 0 || isNaN(result[0]) || result[0] < 0.02", [], True),
    ("len(result) == 0 || isNaN(result[0]) || result[0] < 0.02", [0.05], False),
    ("len(result) == 1 && !isNaN(result[0]) && result[0] >= 20", [], False),
    ("all(result, # < 1000)", [], True),
    ("none(result, # > 5)", [], True),
    ("all(result, {# < 1000})", [10.0, 2000.0], False),
    ("all(result, {# < 1000})", [NAN], False),
    ("any(result, # > 5)", [], False),
    ("len(result) > 0", [], False),
    ("mean(result) < 5", [], True),
    ("sum(result) < 5", [], True),
    ("max(result) < 5", [], ERROR),
    ("last(result) < 5", [], ERROR),
    ("max(result) < 5", [1.0, 2.0], True),
    ("max(result) < 5", [NAN, 2.0], False),
    ("default(result, 0) < 0.05", None, True),
    ("default(result, 0) < 0.05", 0.01, True),
    ("default(result, 0) < 0.05", [0.01], ERROR),
    ("default(result, 0) < 0.05", [], ERROR),
    ("isNil(result)", [], False),
    ("result == nil", [], False),
    ("(result[0] ?? 0) < 1", [], ERROR),
    ("result[0] > 0.95 && result[1] < 500", [0.97], ERROR),
    ("result[0] >= 0.95 || true", [], True),
    ("1 < result[0] < 3", [2.0], True),
    ("result[0] in 1..3", [2.0], True),
    ("not (result[0] > 3)", [2.0], True),
    ("result[0] > 1 and result[0] < 3", [2.0], True),
    ("result[-1] > 1", [0.0, 2.0], True),
    ("let x = result[0]; x > 1", [2.0], True),
    ("result[0] > 1 ? true : false", [2.0], True),
    ("filter(result, # > 1) | len() == 2", [2.0, 3.0], True),
    ("reduce(result, #acc + #, 0) < 9", [2.0, 3.0], True),
    ("median(result) < 5", [2.0, 3.0], True),
    ("result[0] / 0 > 1", [1.0], True),
    ("result[0]", [1.0], ERROR),
    ("results[0] > 1", [1.0], ERROR),
    ('result[0] == "1"', [1.0], ERROR),
    ("result[0] => 1", [1.0], ERROR),
    ("result[0] >= 95%", [1.0], ERROR),
    ("result between 1 and 3", [1.0], ERROR),
]


def outcome(text: str, result: Any) -> Any:
    try:
        return evaluate(parse(text), {"result": result})
    except (SyntaxProblem, EvaluationError):
        return ERROR


@pytest.mark.parametrize(("text", "result", "expected"), GOLDEN)
def test_a_condition_has_the_outcome_of_the_real_engine(text: str, result: Any, expected: Any) -> None:
    assert outcome(text, result) == expected


@pytest.mark.parametrize(
    ("text", "result", "expected"),
    [
        ("result.ok and result.data[0].value > 3", {"ok": True, "data": [{"value": 4}]}, True),
        ("result?.missing?.deeper == nil", {"ok": True}, True),
        ('result["state"] == "done"', {"state": "done"}, True),
        ('result.state startsWith "do"', {"state": "done"}, True),
        ('not (result.state in ["failed", "lost"])', {"state": "done"}, True),
        ('result.state not in ["failed", "lost"]', {"state": "done"}, True),
        ("asInt(result) == 3 && asFloat(result) < 3.5", "3", True),
        ("count(result, # > 1) == 2", [1.0, 2.0, 3.0], True),
        ("2 ** 3 == 8 and 7 % 4 == 3 and -2 + 3 == 1", None, True),
        ("2 + 3 * 4 == 14 and (2 + 3) * 4 == 20", None, True),
        ("result[1:3] == [2, 3]", [1.0, 2.0, 3.0, 4.0], True),
    ],
)
def test_answers_of_web_providers_and_arithmetic(text: str, result: Any, expected: Any) -> None:
    assert outcome(text, result) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("result[0", "ends where something is still expected"),
        ("results > 1", "reads 'results', which does not exist; there is result"),
        ("__import__('os')", "calls '__import__', which does not exist"),
        ("result.__class__.__mro__ ; 1", "does not expect ';'"),
        ("# > 1", "does not expect '#'"),
        ("len(result, 1) > 0", "len takes 1 arguments, not 2"),
        ("(" * 200 + "1" + ")" * 200, "is nested deeper than 64 levels"),
        ("1" * 5000, "is longer than 4096 characters"),
        ("result > 1 @ 2", "cannot read '@ 2' at character 12"),
    ],
)
def test_a_text_that_is_no_condition_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(SyntaxProblem, match=r".*") as caught:
        parse(text)
    assert words in str(caught.value)


def test_work_is_bounded() -> None:
    heavy = parse("all(0..9999, all(0..9999, # >= 0))")
    with pytest.raises(EvaluationError, match="too many steps"):
        evaluate(heavy, {"result": None})
    with pytest.raises(EvaluationError, match="range of more than"):
        evaluate(parse("len(0..99999999) > 1"), {"result": None})
    with pytest.raises(EvaluationError, match="nothing that repeats"):
        evaluate(parse('"aaaa" matches "(a+)+$"'), {"result": None})


def test_conditions_that_take_no_data_for_an_answer_are_told_so() -> None:
    assert "no data would count" in on_no_data(parse("all(result, # < 1000)"))
    assert "cannot be judged" in on_no_data(parse("result[0] >= 0.95"))
    assert on_no_data(parse("len(result) > 0 && result[0] >= 0.95")) == ""
    assert on_not_a_number(parse("result[0] >= 0.95")) == ""
    assert "is true for NaN" in on_not_a_number(parse("not (result[0] < 0.95)"))
