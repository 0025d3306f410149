"""What the product lets users set, read, call and type, found in its own code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("config", "console", "inference", "rollouts", "chaos")
# Read from the environment, but by Python, Django or the tests rather than by a user's wish.
NOT_METRICS = {
    "pilothouse_actor",
    "pilothouse_request_id",
    "pilothouse_tenant",
}  # attributes of requests and a cookie
NOT_SETTINGS = {"DJANGO_SETTINGS_MODULE", "PATH", "HOME", "PYTHONPATH"}


def modules() -> Iterator[ast.Module]:
    for folder in PRODUCT:
        for path in (ROOT / folder).rglob("*.py"):
            yield ast.parse(path.read_text(encoding="utf-8"))


def settings_read() -> set[str]:
    """Names given to config.env's readers or taken from os.environ anywhere in the product."""
    names: set[str] = set()
    for module in modules():
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                owner = ast.unparse(node.func.value)
                first = node.args[0]
                if owner in {"env", "os.environ", "environ"} and isinstance(first, ast.Constant):
                    names.add(str(first.value))
            elif (
                isinstance(node, ast.Subscript)
                and isinstance(node.ctx, ast.Load)
                and isinstance(node.slice, ast.Constant)
                and ast.unparse(node.value) in {"os.environ", "environ"}
            ):
                names.add(str(node.slice.value))
    return names - NOT_SETTINGS


def metrics_exposed() -> set[str]:
    """Whole names with our prefix, as written in the product's strings."""
    name = re.compile(r"pilothouse_[a-z0-9]+(?:_[a-z0-9]+)*")
    return {
        re.sub(r"_(bucket|sum|count)$", "", found)
        for module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for found in name.findall(node.value)
    } - NOT_METRICS


def endpoints() -> list[str]:
    from drf_spectacular.generators import SchemaGenerator

    schema = SchemaGenerator().get_schema(request=None, public=True)
    return sorted(
        f"{method.upper()} {path}"
        for path, operations in schema["paths"].items()
        for method in operations
        if method in {"get", "post", "put", "patch", "delete"}
    )


def commands(command: click.Command, path: str) -> Iterator[str]:
    """Every command below `command` as it is typed; groups load theirs when asked."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, f"{path} {name}"
            yield from commands(child, f"{path} {name}")
    else:
        yield path
