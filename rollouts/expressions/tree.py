"""The nodes of a parsed condition."""

from dataclasses import dataclass

Scalar = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Literal:
    value: Scalar


@dataclass(frozen=True, slots=True)
class ListOf:
    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Pointer:
    """`#`: the element of the closure we are in; `acc` and `index` of it by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Unary:
    operator: str
    operand: "Node"


@dataclass(frozen=True, slots=True)
class Binary:
    operator: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Choice:
    test: "Node"
    yes: "Node"
    no: "Node"


@dataclass(frozen=True, slots=True)
class Item:
    """`of[key]`, or `of.key` with a literal key; optional (`?.`): nil of nil."""

    of: "Node"
    key: "Node"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Slice:
    of: "Node"
    begin: "Node | None"
    end: "Node | None"


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Let:
    name: str
    value: "Node"
    body: "Node"


Node = Literal | ListOf | Name | Pointer | Unary | Binary | Choice | Item | Slice | Call | Let
