"""Text to tokens."""

import re
from dataclasses import dataclass
from enum import Enum, auto

MAX_LENGTH = 4096


class SyntaxProblem(ValueError):
    """The text is no condition; the message says where and why."""


class Kind(Enum):
    NUMBER = auto()
    STRING = auto()
    NAME = auto()
    OPERATOR = auto()
    POINTER = auto()  # `#`, `#acc`, `#index`
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str
    at: int

    def is_operator(self, *texts: str) -> bool:
        return self.kind is Kind.OPERATOR and self.text in texts


# Words that are operators.
_WORDS = frozenset(
    {"and", "or", "not", "in", "matches", "contains", "startsWith", "endsWith", "let", "if", "else"}
)
_PATTERN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d[\d_]*)?\.\d[\d_]*(?:[eE][+-]?\d+)?|\d[\d_]*(?:[eE][+-]?\d+)?)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)
    | (?P<pointer>\#[A-Za-z_]*)
    | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
    | (?P<operator>\*\*|\?\?|\?\.|\|\||&&|==|!=|<=|>=|\.\.|[-+*/%^<>!?:.,()\[\]{}|;=])
    )""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "0": "\0"}


def tokens(text: str) -> list[Token]:
    """Raises SyntaxProblem. The last token is END."""
    if len(text) > MAX_LENGTH:
        raise SyntaxProblem(f"is longer than {MAX_LENGTH} characters")
    found: list[Token] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _PATTERN.match(text, at)
        if match is None:
            where = at + len(text[at:]) - len(text[at:].lstrip())
            raise SyntaxProblem(f"cannot read {text[where : where + 10]!r} at character {where + 1}")
        at = match.end()
        found.append(_token(match))
    return [*found, Token(Kind.END, "", end)]


def _token(match: re.Match[str]) -> Token:
    kind = match.lastgroup
    assert kind is not None
    text, at = match[kind], match.start(kind)
    match kind:
        case "number":
            return Token(Kind.NUMBER, text.replace("_", ""), at)
        case "string":
            inner = text[1:-1]
            return Token(Kind.STRING, inner if text[0] == "`" else _unescaped(inner), at)
        case "pointer":
            return Token(Kind.POINTER, text, at)
        case "name" if text not in _WORDS:
            return Token(Kind.NAME, text, at)
        case _:
            return Token(Kind.OPERATOR, text, at)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)
