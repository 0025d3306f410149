"""The shadow: a request that was answered is asked again of the new version, and the two answers are compared.

It begins when the client has its answer, so it costs the client nothing but the machine's time; it is the first thing
to be left out when either version has work waiting. It touches no quota and is none of the version's own requests.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum

import numpy as np

from inference.plane.batcher import Job, Piece
from inference.plane.datatypes import BY_CODE, Array
from inference.plane.packing import Buffer
from inference.plane.refusals import RefusedError

TENANT = "(shadow)"
MOST_WAITING = 8
MAX_COMPARED_BYTES = 4 << 20
SECONDS = 30.0
# Floats of two graphs of one model differ by rounding; larger differences are the model's.
RTOL, ATOL = 1e-2, 1e-3


class Agreement(StrEnum):
    AGREE = "agree"
    DISAGREE = "disagree"
    FAILED = "failed"  # the new version gave no answer where the old one did
    SKIPPED = "skipped"  # left out: there was work waiting


Told = Callable[[Agreement], None]


class ShadowJob(Job):
    """served: output name -> the answer that the client got, copied. rules: how to compare, by output name."""

    __slots__ = ("outputs", "rules", "served", "told")

    def __init__(
        self,
        arrived: float,
        outputs: tuple[str, ...],
        served: list[Piece],
        rules: Mapping[str, str],
        told: Told,
    ) -> None:
        Job.__init__(self, TENANT, arrived)
        self.outputs = outputs
        self.served = served
        self.rules = rules
        self.told = told

    def answered(self, outputs: list[Piece]) -> None:
        try:
            same = all(
                agree(self.rules.get(name, ""), one, other)
                for name, one, other in zip(self.outputs, self.served, outputs, strict=True)
            )
        except ValueError:
            same = False
        self.told(Agreement.AGREE if same else Agreement.DISAGREE)

    def refused(self, error: RefusedError) -> None:
        self.told(Agreement.FAILED)


def kept(outputs: list[Piece]) -> list[Piece] | None:
    """A copy of an answer to compare with later; None when it is too large to be kept."""
    if sum(len(data) for _, _, data in outputs) > MAX_COMPARED_BYTES:
        return None
    return [(code, dims, bytes(data)) for code, dims, data in outputs]


def default_rule(datatype: str, *, labelled: bool) -> str:
    """Scores over labels agree when the first label is the same; other floats when they are close; all else exactly."""
    if labelled:
        return "label"
    return "close" if datatype in ("FP32", "FP64", "FP16", "BF16") else "exact"


def agree(rule: str, one: Piece, other: Piece) -> bool:
    """rule: exact, ignore, label, close, close:<absolute tolerance>, or rank:<k>. Raises ValueError for another."""
    kind, _, argument = rule.partition(":")
    if kind == "ignore":
        return True
    code, dims, data = one
    if code != other[0] or dims != other[1]:
        return False
    if kind in ("exact", "") or not BY_CODE[code].size:
        return bytes(data) == bytes(other[2])
    served, shadow = (_numbers(code, piece[2]).reshape(dims) for piece in (one, other))
    match kind:
        case "label":
            return bool(np.array_equal(_top(served, 1), _top(shadow, 1)))
        case "rank":
            most = int(argument or "5")
            return bool(np.array_equal(_top(served, most), _top(shadow, most)))
        case "close":
            atol = float(argument) if argument else ATOL
            rtol = 0.0 if argument else RTOL
            return bool(np.allclose(served, shadow, rtol=rtol, atol=atol, equal_nan=True))
    raise ValueError(f"no rule {rule}")


def _numbers(code: int, data: Buffer) -> Array:
    datatype = BY_CODE[code]
    values: Array = np.frombuffer(data, datatype.dtype)
    if datatype.name == "BF16":  # the upper half of a 32-bit float
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values


def _top(scores: Array, most: int) -> Array:
    """Places of the highest scores of each row, the highest first."""
    if scores.ndim == 0 or scores.shape[-1] == 0:
        return scores
    return np.argsort(-scores.astype(np.float64), axis=-1, kind="stable")[..., :most]
