"""`pilothouse model`: register versions and look at them."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from console.cli.client import Client, CliError
from console.cli.output import json_option, show, table

GRAPH = "model.onnx"
_CONTRACTS = ("contract.yaml", "contract.yml")
_UPLOAD_SECONDS = 900.0

_VERSION_COLUMNS = {
    "number": "VERSION",
    "aliases": "ALIASES",
    "weight": "WEIGHT %",
    "quantization": "QUANTIZATION",
    "size": "SIZE",
    "note": "NOTE",
    "created_by": "BY",
    "created_at": "AT",
}
_MODEL_COLUMNS = {
    "name": "NAME",
    "tenant": "TENANT",
    "stable": "STABLE",
    "versions": "VERSIONS",
    "traffic": "TRAFFIC",
}


@click.group()
def model() -> None:
    """Models and their versions."""


@model.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--name", required=True, help="Name of the service, as its clients write it.")
@click.option("--contract", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="YAML file.")
@click.option("--tenant", help="Slug of the owner; needed when you have several.")
@click.option("--note", default="", help="What is new about it.")
@click.option("--parent", type=int, help="Number of the version it was made from.")
@click.option("--key", help="Idempotency key: the same key registers once.")
@json_option
def register(
    path: Path,
    name: str,
    contract: Path | None,
    tenant: str | None,
    note: str,
    parent: int | None,
    key: str | None,
) -> None:
    """Register a version from PATH: an .onnx file, or a folder with one and what belongs beside it."""
    graph, beside = _sources(path)
    if contract is None:
        contract = next((file for file in beside if file.name in _CONTRACTS), None)
    beside = [file for file in beside if file.name not in _CONTRACTS]
    fields = {"service": name, "tenant": tenant, "note": note, "parent_number": parent}
    with contextlib.ExitStack() as opened:
        parts: list[tuple[str, tuple[str, Any]]] = [
            ("model", (GRAPH, opened.enter_context(graph.open("rb"))))
        ]
        if contract is not None:
            parts.append(("contract", (contract.name, opened.enter_context(contract.open("rb")))))
        parts += [("files", (file.name, opened.enter_context(file.open("rb")))) for file in beside]
        made = Client().post(
            "versions",
            data={field: str(value) for field, value in fields.items() if value is not None},
            files=parts,
            key=key,
            timeout=_UPLOAD_SECONDS,
        )
    show(made, lambda: _registered(made))


@model.command(name="list")
@json_option
def list_() -> None:
    """Models you may see, with what serves now."""
    rows = list(Client().pages("models"))
    lines = [
        {
            "name": row["name"],
            "tenant": row["tenant"],
            "stable": row["aliases"].get("stable"),
            "versions": len(row["versions"]),
            "traffic": _traffic(row),
        }
        for row in rows
    ]
    empty = "There are no models yet; `pilothouse model register` makes the first."
    show(rows, lambda: table(lines, _MODEL_COLUMNS, empty=empty))


@model.command(name="show")
@click.argument("which", metavar="NAME[:VERSION]")
@json_option
def show_(which: str) -> None:
    """One model with its versions, or one version with its contract and signature."""
    name, colon, number = which.rpartition(":")
    if not colon:
        found = Client().get(f"models/{which}")
        show(found, lambda: _model_text(found))
        return
    if not number.isdigit():
        raise click.UsageError(f"{number!r} is no version number; write NAME:2.")
    version = Client().get(f"versions/{name}/{number}")
    show(version, lambda: _version_text(version))


def _sources(path: Path) -> tuple[Path, list[Path]]:
    """The graph and the files beside it. Raises CliError for what a version cannot hold."""
    if path.is_file():
        return path, []
    files = sorted(file for file in path.iterdir() if not file.name.startswith("."))
    for file in files:
        # A link could send along a file that nobody meant to publish.
        if file.is_symlink() or not file.is_file():
            raise CliError(f"{file} is not a plain file; a model's folder holds nothing else.")
    graphs = [file for file in files if file.suffix == ".onnx"]
    graph = next((file for file in graphs if file.name == GRAPH), graphs[0] if len(graphs) == 1 else None)
    if graph is None:
        raise CliError(f"{path} must hold {GRAPH}, or exactly one .onnx file; it holds {len(graphs)}.")
    return graph, [file for file in files if file != graph]


def _registered(version: Mapping[str, Any]) -> str:
    name, number = version["service"], version["number"]
    line = f"{name}:{number} is registered, SHA-256 {version['digest'][:12]}."
    if "stable" in version["aliases"]:
        return f"{line} It is the stable version and takes all requests."
    return f"{line} It takes no requests yet: pilothouse rollout start {name} --version {number}"


def _traffic(row: Mapping[str, Any]) -> str:
    shares = {version: weight for version, weight in _weights(row).items() if weight}
    return " ".join(f"{version}:{weight}%" for version, weight in shares.items())


def _weights(row: Mapping[str, Any]) -> dict[int, int]:
    """Version number -> share of the requests in percent."""
    return {placement["version"]: placement["weight_percent"] for placement in row["placements"]}


def _model_text(row: Mapping[str, Any]) -> str:
    weights = _weights(row)
    lines = [
        {**version, "weight": weights.get(version["number"]), "size": _size(version["size_bytes"])}
        for version in row["versions"]
    ]
    head = f"{row['name']} of {row['tenant']}" + (f": {row['description']}" if row["description"] else "")
    return f"{head}\n\n{table(lines, _VERSION_COLUMNS, empty='It has no versions.')}"


def _version_text(version: Mapping[str, Any]) -> str:
    facts = {
        "version": f"{version['service']}:{version['number']}",
        "aliases": version["aliases"],
        "digest": version["digest"],
        "note": version["note"],
        "made from": version["parent_number"],
        "registered": f"{version['created_at']} by {version['created_by']}",
        "files": [f"{file['path']} {_size(file['size'])}" for file in version["files"]],
        "signature": version["signature"],
        "contract": version["contract"],
    }
    kept = {name: value for name, value in facts.items() if value not in (None, "", [])}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=110).rstrip()


def _size(size: int) -> str:
    value, units = float(size), ["B", "KiB", "MiB", "GiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"
