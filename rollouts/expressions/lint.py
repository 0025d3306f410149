"""What a condition says where there is no data: the fault that its author does not see."""

from rollouts.expressions.builtins import EvaluationError
from rollouts.expressions.evaluate import evaluate
from rollouts.expressions.parse import Expression


def on_no_data(condition: Expression) -> str:
    """A warning about an empty vector as the result, or ""."""
    try:
        if evaluate(condition, {"result": []}):
            return "is true when the query finds nothing: no data would count as an answer"
    except EvaluationError as error:
        return f"cannot be judged when the query finds nothing: {error}"
    return ""


def on_not_a_number(condition: Expression) -> str:
    """A warning about a NaN as the only sample, or ""."""
    try:
        if evaluate(condition, {"result": [float("nan")]}):
            return "is true for NaN, which a ratio without requests is"
    except EvaluationError as error:
        return f"cannot be judged for NaN: {error}"
    return ""
