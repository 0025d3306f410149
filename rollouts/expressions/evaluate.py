"""A tree to a boolean. Types are checked as expr's compiler and runtime together would, with bounds on the work."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rollouts.expressions import builtins
from rollouts.expressions.builtins import EvaluationError, compared, equal, number_of
from rollouts.expressions.parse import Expression
from rollouts.expressions.tree import (
    Binary,
    Call,
    Choice,
    Item,
    Let,
    ListOf,
    Literal,
    Name,
    Node,
    Pointer,
    Slice,
    Unary,
)  # fmt: skip

MAX_STEPS = 200_000
MAX_RANGE = 10_000
MAX_TEXT = 65_536


def evaluate(expression: Expression, environment: Mapping[str, Any]) -> bool:
    """Raises EvaluationError, also where the outcome is no boolean."""
    outcome = _Run(environment).value(expression.tree)
    if not isinstance(outcome, bool):
        raise EvaluationError(f"gives {builtins.kind_of(outcome)}, not true or false")
    return outcome


@dataclass(slots=True)
class _Run:
    environment: Mapping[str, Any]
    lets: dict[str, Any] = field(default_factory=dict)
    pointers: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0

    def value(self, node: Node) -> Any:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise EvaluationError("takes too many steps")
        match node:
            case Literal(value):
                return value
            case Name(name):
                return self.lets[name] if name in self.lets else self.environment.get(name)
            case Pointer(name):
                return self.pointers[-1][name]
            case ListOf(items):
                return [self.value(item) for item in items]
            case Unary():
                return self.unary(node)
            case Binary():
                return self.binary(node)
            case Choice(test, yes, no):
                return self.value(yes if _truth(self.value(test)) else no)
            case Item():
                return self.item(node)
            case Slice():
                return self.slice(node)
            case Call():
                return self.call(node)
            case Let(name, value, body):
                self.lets[name] = self.value(value)
                return self.value(body)

    def unary(self, node: Unary) -> Any:
        value = self.value(node.operand)
        if node.operator == "not":
            return not _truth(value)
        number = number_of(value, f"unary {node.operator}")
        return -number if node.operator == "-" else number

    def binary(self, node: Binary) -> Any:
        match node.operator:
            case "or":
                return _truth(self.value(node.left)) or _truth(self.value(node.right))
            case "and":
                return _truth(self.value(node.left)) and _truth(self.value(node.right))
            case "??":
                left = self.value(node.left)
                return self.value(node.right) if left is None else left
        return _apply(node.operator, self.value(node.left), self.value(node.right))

    def item(self, node: Item) -> Any:
        of, key = self.value(node.of), self.value(node.key)
        if of is None and node.optional:
            return None
        if isinstance(of, dict):
            if not isinstance(key, str):
                raise EvaluationError(f"looks up {builtins.kind_of(key)} in an object; keys are strings")
            return of.get(key)
        if isinstance(of, list | str):
            return of[_index(key, len(of))]
        raise EvaluationError(f"takes an element of {builtins.kind_of(of)}")

    def slice(self, node: Slice) -> Any:
        of = self.value(node.of)
        if not isinstance(of, list | str):
            raise EvaluationError(f"takes a slice of {builtins.kind_of(of)}")
        begin = 0 if node.begin is None else self.value(node.begin)
        end = len(of) if node.end is None else self.value(node.end)
        if type(begin) is not int or type(end) is not int:
            raise EvaluationError("takes a slice with bounds that are no integers")
        return of[begin:end]

    def call(self, node: Call) -> Any:
        first = self.value(node.arguments[0])
        if node.name in builtins.OVER and len(node.arguments) > 1:
            if not isinstance(first, list):
                raise EvaluationError(f"{node.name} needs a list, not {builtins.kind_of(first)}")
            if node.name == "reduce":
                return self.reduce(node, first)
            return builtins.OVER[node.name](first, self.closure(node.arguments[1]))
        if node.name in ("isNil", "default"):
            # As in Argo: both look at the whole result, whatever the first argument is.
            whole = self.environment.get("result")
            if node.name == "isNil":
                return whole is None
            return self.value(node.arguments[1]) if whole is None else whole
        return builtins.PLAIN[node.name](first, *(self.value(one) for one in node.arguments[1:]))

    def closure(self, body: Node) -> Callable[[int, Any], Any]:
        def run(index: int, element: Any) -> Any:
            return self.within({"": element, "index": index}, body)

        return run

    def within(self, pointer: dict[str, Any], body: Node) -> Any:
        self.pointers.append(pointer)
        value = self.value(body)
        self.pointers.pop()
        return value

    def reduce(self, node: Call, elements: list[Any]) -> Any:
        rest = list(enumerate(elements))
        if len(node.arguments) == 3:
            total = self.value(node.arguments[2])
        elif rest:
            total = rest.pop(0)[1]
        else:
            raise EvaluationError("reduce of an empty list without a first value")
        for index, element in rest:
            total = self.within({"": element, "index": index, "acc": total}, node.arguments[1])
        return total


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError(f"uses {builtins.kind_of(value)} as true or false")
    return value


def _index(key: Any, length: int) -> int:
    if type(key) is not int:
        raise EvaluationError(f"takes an element by {builtins.kind_of(key)}, not by an integer")
    if not -length <= key < length:
        raise EvaluationError(f"takes element {key} of {length}")
    return key


def _apply(operator: str, left: Any, right: Any) -> Any:
    match operator:
        case "==":
            return equal(left, right)
        case "!=":
            return not equal(left, right)
        case "<" | ">" | "<=" | ">=":
            return compared(operator, left, right)
        case "in":
            if isinstance(right, dict):
                return left in right
            if not isinstance(right, list):
                raise EvaluationError(f"looks for something in {builtins.kind_of(right)}")
            return any(equal(left, element, strict=False) for element in right)
        case "..":
            return _range(left, right)
        case "contains" | "startsWith" | "endsWith" | "matches":
            return _of_texts(operator, left, right)
    if operator == "+" and isinstance(left, str) and isinstance(right, str):
        if len(left) + len(right) > MAX_TEXT:
            raise EvaluationError("makes a text that is too long")
        return left + right
    return _arithmetic(operator, number_of(left, operator), number_of(right, operator))


def _range(left: Any, right: Any) -> list[int]:
    if type(left) is not int or type(right) is not int:
        raise EvaluationError("makes a range of something that is no integer")
    if right - left >= MAX_RANGE:
        raise EvaluationError(f"makes a range of more than {MAX_RANGE} numbers")
    return list(range(left, right + 1))


def _of_texts(operator: str, left: Any, right: Any) -> bool:
    if not isinstance(left, str) or not isinstance(right, str):
        raise EvaluationError(f"{operator} needs two texts")
    match operator:
        case "contains":
            return right in left
        case "startsWith":
            return left.startswith(right)
        case "endsWith":
            return left.endswith(right)
    # A regular expression of Python's kind could take for ever; only plain alternatives of literals are offered.
    if re.search(r"[*+?{}()\\\[\]]", right):
        raise EvaluationError("matches knows literals, ^, $, . and | here, nothing that repeats")
    return re.search(right, left[:MAX_TEXT]) is not None


def _arithmetic(operator: str, left: int | float, right: int | float) -> int | float:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return _divided(float(left), float(right))
        case "%":
            if type(left) is not int or type(right) is not int or right == 0:
                raise EvaluationError("% needs integers and no zero on the right")
            return int(math.fmod(left, right))
        case "**":
            try:
                return float(left) ** float(right) if left >= 0 or float(right).is_integer() else math.nan
            except (OverflowError, ZeroDivisionError):
                return math.inf
    raise EvaluationError(f"operator {operator} is not known")


def _divided(left: float, right: float) -> float:
    """As IEEE 754 says."""
    if right:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)
