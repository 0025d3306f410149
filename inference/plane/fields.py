"""Single fields of an inference request: told apart by type, because 1, 1.0 and true are the same key of a table."""

from collections.abc import Sequence
from typing import Any

from inference.plane.packing import bad
from inference.plane.refusals import RefusedError

RESERVED = ("sequence_id", "sequence_start", "sequence_end")


class UnusualError(Exception):
    """This request's look is no key; it has to be studied."""


def look_of_outputs(wanted: Any) -> tuple[tuple[str, bool | None], ...] | None:
    """What the wished outputs add to a request's look."""
    if wanted is None:
        return None
    if type(wanted) is not list:
        raise UnusualError
    return tuple([_look_of_output(output) for output in wanted]) or None


def _look_of_output(output: Any) -> tuple[str, bool | None]:
    parameters = output.get("parameters")
    if parameters is None or parameters == {}:
        return output["name"], None
    if type(parameters) is not dict or len(parameters) != 1 or type(parameters["binary_data"]) is not bool:
        raise UnusualError
    return output["name"], parameters["binary_data"]


def shape_of(tensor: Any) -> list[int]:
    """The shape as told, when nothing about its form or the tensor's parameters is unusual."""
    shape, parameters = tensor["shape"], tensor.get("parameters")
    if type(shape) is not list or not (parameters is None or type(parameters) is dict):
        raise UnusualError
    for dim in shape:
        if type(dim) is not int:
            raise UnusualError
    return shape


def binary_wish(name: str, parameters: Any) -> bool:
    if parameters is None:
        return False
    if type(parameters) is not dict:
        raise bad(f"parameters of output {name} must be an object")
    wish = parameters.get("binary_data", False)
    if type(wish) is not bool:
        raise bad(f"binary_data of output {name} must be true or false")
    return wish


def uneven(inputs: Sequence[Any]) -> RefusedError:
    shapes = ", ".join(f"{str(tensor.get('name'))[:50]} {tensor.get('shape')}"[:200] for tensor in inputs[:8])
    return bad(f"the first dimension must be the same in all inputs: {shapes}")


def timeout_of(parameters: dict[str, Any]) -> float | None:
    """Checks request parameters; returns `timeout` (microseconds) in seconds."""
    timeout = None
    for name, value in parameters.items():
        if name == "timeout":
            if type(value) is not int or value < 0:
                raise bad("timeout must be a number of microseconds")
            timeout = value / 1e6 if value else None
        elif name in RESERVED and value:
            raise bad(f"parameter {name}: sequences are not served")
        elif name.startswith("triton_"):
            raise bad(f"parameter {name[:100]} is reserved")
        elif type(value) not in (str, int, float, bool):
            raise bad(f"parameter {name[:100]} must be a string, a number or a boolean")
    return timeout
