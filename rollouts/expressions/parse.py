"""Tokens to a tree: precedence climbing (Pratt, 1973) with expr's table of precedences."""

from dataclasses import dataclass

from rollouts.expressions.functions import CLOSURES, NAMES
from rollouts.expressions.tokens import Kind, SyntaxProblem, Token, tokens
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

__all__ = ["Expression", "SyntaxProblem", "parse"]

MAX_DEPTH = 64
_BINARY = {
    "|": 0, "or": 10, "||": 10, "and": 15, "&&": 15, "==": 20, "!=": 20, "<": 20, ">": 20, "<=": 20, ">=": 20,
    "in": 20, "matches": 20, "contains": 20, "startsWith": 20, "endsWith": 20, "..": 25, "+": 30, "-": 30,
    "*": 60, "/": 60, "%": 60, "**": 100, "^": 100, "??": 500,
}  # fmt: skip
_UNARY = {"not": 50, "!": 50, "-": 90, "+": 90}
_RIGHT = frozenset({"**", "^"})
_COMPARISONS = frozenset({"<", ">", "<=", ">="})
_SAME = {"||": "or", "&&": "and", "!": "not", "^": "**"}
_CONSTANTS = {"true": True, "false": False, "nil": None}


@dataclass(frozen=True, slots=True)
class Expression:
    """A condition that can be evaluated. names: what it reads from its environment."""

    text: str
    tree: Node
    names: frozenset[str]


def parse(text: str, *, environment: frozenset[str] = frozenset({"result"})) -> Expression:
    """Raises SyntaxProblem, also for a name that neither the environment nor the language has."""
    parser = _Parser(tokens(text), environment)
    tree = parser.whole()
    return Expression(text, tree, frozenset(parser.read))


class _Parser:
    def __init__(self, found: list[Token], environment: frozenset[str]) -> None:
        self.tokens = found
        self.at = 0
        self.depth = 0
        self.closures = 0
        self.known = set(environment)
        self.read: set[str] = set()

    @property
    def current(self) -> Token:
        return self.tokens[self.at]

    @property
    def at_end(self) -> bool:
        return self.at == len(self.tokens) - 1

    def whole(self) -> Node:
        if self.at_end:
            raise SyntaxProblem("is empty")
        tree = self.sequence()
        if not self.at_end:
            raise self.unexpected()
        return tree

    def unexpected(self) -> SyntaxProblem:
        token = self.current
        if token.kind is Kind.END:
            return SyntaxProblem("ends where something is still expected")
        return SyntaxProblem(f"does not expect {token.text!r} at character {token.at + 1}")

    def take(self, *operators: str) -> bool:
        if self.current.is_operator(*operators):
            self.at += 1
            return True
        return False

    def need(self, operator: str) -> None:
        if not self.take(operator):
            raise self.unexpected()

    def sequence(self) -> Node:
        """`let x = ...; body`, or an expression."""
        if not self.take("let"):
            return self.expression(0)
        name = self.current
        if name.kind is not Kind.NAME or name.text in self.known or name.text in NAMES:
            raise self.unexpected()
        self.at += 1
        self.need("=")
        value = self.expression(0)
        self.need(";")
        self.known.add(name.text)
        body = self.sequence()
        self.known.discard(name.text)
        return Let(name.text, value, body)

    def expression(self, least: int) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise SyntaxProblem(f"is nested deeper than {MAX_DEPTH} levels")
        left = self.prefix()
        while True:
            token = self.current
            negated = token.is_operator("not") and self.tokens[self.at + 1].is_operator(
                "in", "matches", "contains", "startsWith", "endsWith"
            )
            operator = self.tokens[self.at + 1].text if negated else token.text
            if token.kind is not Kind.OPERATOR or _BINARY.get(operator, -1) < least:
                break
            self.at += 2 if negated else 1
            left = self.infix(left, operator)
            left = Unary("not", left) if negated else left
        if least == 0 and self.take("?"):
            yes = self.expression(0)
            self.need(":")
            left = Choice(left, yes, self.expression(0))
        self.depth -= 1
        return left

    def infix(self, left: Node, operator: str) -> Node:
        if operator == "|":
            name = self.current
            if name.kind is not Kind.NAME:
                raise self.unexpected()
            self.at += 1
            return self.postfix(self.call(name, (left,)))
        precedence = _BINARY[operator]
        right = self.expression(precedence if operator in _RIGHT else precedence + 1)
        if operator in _COMPARISONS:
            return self.chained(left, operator, right)
        return _folded(Binary(_SAME.get(operator, operator), left, right))

    def chained(self, left: Node, operator: str, right: Node) -> Node:
        """`1 < x < 3` is `1 < x and x < 3`."""
        node: Node = Binary(operator, left, right)
        while self.current.kind is Kind.OPERATOR and self.current.text in _COMPARISONS:
            following = self.current.text
            self.at += 1
            after = self.expression(_BINARY[following] + 1)
            node, right = Binary("and", node, Binary(following, right, after)), after
        return node

    def prefix(self) -> Node:
        token = self.current
        if token.kind is Kind.OPERATOR and token.text in _UNARY:
            self.at += 1
            operand = self.expression(_UNARY[token.text])
            return self.postfix(Unary(_SAME.get(token.text, token.text), operand))
        return self.postfix(self.primary())

    def primary(self) -> Node:
        token = self.current
        self.at += 1
        match token.kind:
            case Kind.NUMBER:
                whole = token.text.isdigit()
                return Literal(int(token.text) if whole else float(token.text))
            case Kind.STRING:
                return Literal(token.text)
            case Kind.POINTER if self.closures and token.text in ("#", "#acc", "#index"):
                return Pointer(token.text[1:])
            case Kind.NAME:
                return self.named(token)
            case Kind.OPERATOR if token.text == "(":
                inner = self.sequence()
                self.need(")")
                return inner
            case Kind.OPERATOR if token.text == "[":
                return ListOf(self.listed("]"))
        self.at -= 1
        raise self.unexpected()

    def named(self, token: Token) -> Node:
        if self.current.is_operator("("):
            return self.call(token, ())
        if token.text in _CONSTANTS:
            return Literal(_CONSTANTS[token.text])
        if token.text not in self.known:
            raise SyntaxProblem(f"reads {token.text!r}, which does not exist; there is {self._offer()}")
        self.read.add(token.text)
        return Name(token.text)

    def _offer(self) -> str:
        return ", ".join(sorted(self.known))

    def call(self, name: Token, given: tuple[Node, ...]) -> Node:
        if name.text not in NAMES:
            raise SyntaxProblem(f"calls {name.text!r}, which does not exist")
        self.need("(")
        arguments = given + self.arguments(name.text, len(given))
        least, most = NAMES[name.text]
        if not least <= len(arguments) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise SyntaxProblem(f"{name.text} takes {wanted} arguments, not {len(arguments)}")
        return Call(name.text, arguments)

    def arguments(self, name: str, given: int) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self.take(")"):
            if found:
                self.need(",")
            # The second argument of these is a closure over the first one's elements.
            inside = name in CLOSURES and given + len(found) == 1
            found.append(self.closure() if inside else self.expression(0))
        return tuple(found)

    def closure(self) -> Node:
        self.closures += 1
        braced = self.take("{")
        body = self.sequence()
        if braced:
            self.need("}")
        self.closures -= 1
        return body

    def listed(self, end: str) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self.take(end):
            if found:
                self.need(",")
            found.append(self.expression(0))
        return tuple(found)

    def postfix(self, node: Node) -> Node:
        while True:
            if self.take(".", "?."):
                optional = self.tokens[self.at - 1].text == "?."
                if self.current.kind is not Kind.NAME:
                    raise self.unexpected()
                node = Item(node, Literal(self.current.text), optional)
                self.at += 1
            elif self.take("["):
                node = self.bracket(node)
            else:
                return node

    def bracket(self, node: Node) -> Node:
        begin = None if self.current.is_operator(":") else self.expression(0)
        if self.take(":"):
            end = None if self.current.is_operator("]") else self.expression(0)
            self.need("]")
            return Slice(node, begin, end)
        self.need("]")
        assert begin is not None
        return Item(node, begin)


def _folded(node: Binary) -> Node:
    """As expr's optimizer: `x or true` never looks at x, so it cannot fail there."""
    sides = (node.left, node.right)
    if node.operator == "or" and any(side == Literal(True) for side in sides):
        return Literal(True)
    if node.operator == "and" and any(side == Literal(False) for side in sides):
        return Literal(False)
    return node
