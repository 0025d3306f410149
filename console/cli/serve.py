"""`pilothouse serve`: one node, one model, no database. Every argument belongs to inference.plane.serve."""

import os
import sys

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(arguments: tuple[str, ...]) -> None:
    """Serve one ONNX model: --model-path M.onnx [--contract C.yaml] [--port 8080]; --help tells all."""
    # Replaced, not wrapped: signals and exit code are those of the server.
    os.execv(sys.executable, [sys.executable, "-m", "inference.plane.serve", *arguments])  # noqa: S606  no shell on purpose
