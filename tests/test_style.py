"""Measurable style: short modules and functions, no unexplained silencing, nothing of a private machine in the tree."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE_LINES, FUNCTION_LINES = 400, 60

# "path" or "path:function" -> why it had to be longer.
LONG_FOR_A_REASON: dict[str, str] = {}

SILENCERS = re.compile(r"#\s*(noqa|type:\s*ignore)")
WITH_REASON = re.compile(r"# (noqa: [A-Z0-9]+(, ?[A-Z0-9]+)*|type: ignore\[[a-z, -]+\])  ?([#-] )?\w+ \w+")

# Written in pieces, so that this file does not find itself.
FORBIDDEN = {
    "a path of one machine": re.compile(
        "|".join(("/" + "work/", "/" + "root/", "/" + "opt/pypi", "/" + "home/"))
    ),
    "a registry's host": re.compile(
        "|".join(("pypi" + r"\.org", "pythonhosted" + r"\.org", "registry" + r"\.npmjs"))
    ),
    "a private key": re.compile("BEGIN [A-Z ]*" + "PRIVATE KEY"),
    "a secret of ours": re.compile(r"\bpht?_" + r"[A-Za-z0-9_-]{40,}"),
    "an address of a private network": re.compile(
        r"(?<![=.\d])(10\.\d+|192\.168|172\.(1[6-9]|2\d|3[01]))\.\d+\.\d+\b"
    ),
}


@cache
def tracked() -> tuple[Path, ...]:
    """Files under version control, or about to be: what git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    return tuple(path for path in paths if path.is_file())


def sources() -> Iterator[tuple[str, str]]:
    """(path, text) of each Python module that a person wrote."""
    for path in tracked():
        if path.suffix == ".py" and "migrations" not in path.parts:
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def texts() -> Iterator[tuple[str, str]]:
    for path in tracked():
        try:
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def test_no_module_is_longer_than_400_lines() -> None:
    lengths = {name: text.count("\n") for name, text in sources()}
    too_long = {name: lines for name, lines in lengths.items() if lines > MODULE_LINES}
    assert set(too_long) <= set(LONG_FOR_A_REASON), too_long


def test_no_function_is_longer_than_60_lines() -> None:
    too_long = {
        f"{name}:{node.name}": node.end_lineno - node.lineno + 1
        for name, text in sources()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    }
    assert set(too_long) <= set(LONG_FOR_A_REASON), too_long


def test_every_silenced_finding_says_why() -> None:
    unexplained = [
        f"{name}:{number}: {line.strip()}"
        for name, text in sources()
        for number, line in enumerate(text.splitlines(), 1)
        if SILENCERS.search(line) and not WITH_REASON.search(line) and "re.compile" not in line
    ]
    assert not unexplained, "\n".join(unexplained)


def test_nothing_of_a_private_machine_is_in_the_tree() -> None:
    found = [
        f"{name}:{number}: {what}: {line.strip()[:100]}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        for what, pattern in FORBIDDEN.items()
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def test_nothing_is_left_for_later() -> None:
    marks = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")) + r")\b")
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if marks.search(line)
    ]
    assert not found, "\n".join(found)


def test_the_product_prints_only_on_the_command_line() -> None:
    """The product logs, answers or echoes; print belongs to scripts and to the command line."""
    found = [
        f"{name}:{node.lineno}"
        for name, text in sources()
        if not name.startswith(("tests/", "console/cli/", "inference/plane/serve.py"))
        and "/management/" not in name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not found, found
