"""What the functions do, and how values of the language compare."""

import math
from collections.abc import Callable
from statistics import fmean
from typing import Any


class EvaluationError(ValueError):
    """The condition has no answer for this result."""


def kind_of(value: Any) -> str:
    match value:
        case None:
            return "nil"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
    return "an object"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def number_of(value: Any, where: str) -> int | float:
    if not is_number(value):
        raise EvaluationError(f"{where} needs a number, not {kind_of(value)}")
    number: int | float = value
    return number


def equal(left: Any, right: Any, *, strict: bool = True) -> bool:
    """strict: values of different kinds are an error, as a typed compiler sees them; nil compares with all."""
    if left is None or right is None:
        return left is right
    if is_number(left) and is_number(right):
        return bool(left == right)
    if type(left) is not type(right):
        if strict:
            raise EvaluationError(f"compares {kind_of(left)} with {kind_of(right)}")
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(
            equal(one, other, strict=False) for one, other in zip(left, right, strict=True)
        )
    return bool(left == right)


def compared(operator: str, left: Any, right: Any) -> bool:
    if not (is_number(left) and is_number(right)) and not (isinstance(left, str) and isinstance(right, str)):
        raise EvaluationError(f"compares {kind_of(left)} {operator} {kind_of(right)}")
    match operator:
        case "<":
            return bool(left < right)
        case ">":
            return bool(left > right)
        case "<=":
            return bool(left <= right)
    return bool(left >= right)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError(f"a condition on elements gives {kind_of(value)}")
    return value


Closure = Callable[[int, Any], Any]


def _hits(elements: list[Any], test: Closure) -> list[Any]:
    return [element for index, element in enumerate(elements) if _truth(test(index, element))]


def _find(elements: list[Any], test: Closure) -> Any:
    return next((one for index, one in enumerate(elements) if _truth(test(index, one))), None)


# Over a list, with a closure.
OVER: dict[str, Callable[[list[Any], Closure], Any]] = {
    "all": lambda elements, test: all(_truth(test(i, one)) for i, one in enumerate(elements)),
    "none": lambda elements, test: not any(_truth(test(i, one)) for i, one in enumerate(elements)),
    "any": lambda elements, test: any(_truth(test(i, one)) for i, one in enumerate(elements)),
    "one": lambda elements, test: len(_hits(elements, test)) == 1,
    "filter": _hits,
    "count": lambda elements, test: len(_hits(elements, test)),
    "map": lambda elements, make: [make(i, one) for i, one in enumerate(elements)],
    "find": _find,
    "sum": lambda elements, make: _sum([make(i, one) for i, one in enumerate(elements)]),
    "reduce": lambda elements, make: None,  # evaluated where the accumulator is
}


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise EvaluationError(f"{name} needs a list, not {kind_of(value)}")
    return value


def _numbers(given: tuple[Any, ...], name: str) -> list[int | float]:
    flat: list[Any] = []
    for one in given:
        flat += one if isinstance(one, list) else [one]
    return [number_of(one, name) for one in flat]


def _sum(elements: Any) -> int | float:
    return sum(_numbers((_list(elements, "sum"),), "sum"))


def _extreme(name: str, better: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    def find(*given: Any) -> Any:
        numbers = _numbers(given, name)
        if not numbers:
            raise EvaluationError(f"{name} of nothing")
        best = numbers[0]  # a NaN here stays: nothing is better than it
        for number in numbers[1:]:
            if better(number, best):
                best = number
        return best

    return find


def _mean(*given: Any) -> float:
    numbers = _numbers(given, "mean")
    return fmean(numbers) if numbers else 0.0


def _median(*given: Any) -> float:
    numbers = sorted(_numbers(given, "median"))
    if not numbers:
        return 0.0
    middle = len(numbers) // 2
    return float(numbers[middle] if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2)


def _length(value: Any) -> int:
    if not isinstance(value, list | str | dict):
        raise EvaluationError(f"len of {kind_of(value)}")
    return len(value)


def _float(value: Any) -> float:
    try:
        return float(value) if isinstance(value, str) else float(number_of(value, "float"))
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def _int(value: Any) -> int:
    try:
        return int(value) if isinstance(value, str) else int(number_of(value, "int"))
    except (ValueError, OverflowError) as error:
        raise EvaluationError(str(error)) from None


def _checked_float(value: Any, name: str) -> float:
    if not isinstance(value, float):
        raise EvaluationError(f"{name} needs a number, not {kind_of(value)}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise EvaluationError(f"needs a text, not {kind_of(value)}")
    return value


def _rounded(value: Any, how: Callable[[float], int]) -> float:
    number = float(number_of(value, "rounding"))
    return float(how(number)) if math.isfinite(number) else number


PLAIN: dict[str, Callable[..., Any]] = {
    "len": _length,
    "first": lambda value: next(iter(_list(value, "first")), None),
    "last": lambda value: next(reversed(_list(value, "last")), None),
    "count": lambda value: sum(1 for one in _list(value, "count") if _truth(one)),
    "sum": _sum,
    "mean": _mean,
    "median": _median,
    "min": _extreme("min", lambda one, other: one < other),
    "max": _extreme("max", lambda one, other: one > other),
    "abs": lambda value: abs(number_of(value, "abs")),
    "ceil": lambda value: _rounded(value, math.ceil),
    "floor": lambda value: _rounded(value, math.floor),
    "round": lambda value: _rounded(value, lambda one: math.floor(abs(one) + 0.5) * (1 if one >= 0 else -1)),
    "int": _int,
    "asInt": _int,
    "float": _float,
    "asFloat": _float,
    "string": lambda value: value if isinstance(value, str) else str(value),
    "lower": lambda value: _text(value).lower(),
    "upper": lambda value: _text(value).upper(),
    "trim": lambda value: _text(value).strip(),
    "isNaN": lambda value: math.isnan(_checked_float(value, "isNaN")),
    "isInf": lambda value: math.isinf(_checked_float(value, "isInf")),
}
