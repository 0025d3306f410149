"""The shadow: a request that was answered is asked again of the new version, and the two answers are compared.

It begins when the client has its answer, so it costs the client nothing but the machine's time; it is the first thing
to be left out when either version has work waiting. It touches no quota and is none of the version's own requests.
"""

import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from inference.contract import Contract
from inference.plane.batcher import Job, Piece
from inference.plane.datatypes import BY_CODE, Array
from inference.plane.packing import Buffer
from inference.plane.refusals import RefusedError
from inference.plane.routing import Mirror

if TYPE_CHECKING:
    from inference.plane.pool import Pool

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


def rules_for(contract: Contract, told: Mapping[str, str]) -> dict[str, str]:
    """How to compare each output of a version. The score beside a label says nothing that the label does not."""
    hook = contract.spec.hooks.postprocess
    rules = {
        tensor.name: default_rule(tensor.datatype, labelled=tensor.labels is not None)
        for tensor in contract.public_outputs
    }
    if hook is not None:
        rules |= {hook.input: "label", hook.label: "exact", hook.score: "ignore"}
    return rules | {name: rule for name, rule in told.items() if name in rules}


class Shadow:
    """Repeats a share of one version's answered requests to another version."""

    def __init__(
        self, source: "Pool", target: "Pool", percent: int, told: Mapping[str, str], count: Told
    ) -> None:
        self.target = target
        self.source = source
        self.mirror = Mirror(percent)
        self.rules = rules_for(source.contract, told)
        self.count = count

    def served(self, job: Job, outputs: list[Piece]) -> None:
        """After the client's answer was handed over; `outputs` are still valid. Never raises."""
        if not self.mirror.next():
            return
        if self.source.queue.rows or self.target.total >= MOST_WAITING or not self.target.ready:
            self.count(Agreement.SKIPPED)
            return
        plan = self.target.codec.plan_like(job.plan.wire)
        served = kept(outputs)
        whole = all(isinstance(buffer, bytes | memoryview) for buffer in job.buffers)
        if plan is None or served is None or not whole or job.rows > self.target.codec.max_rows:
            self.count(Agreement.SKIPPED if plan is not None else Agreement.FAILED)
            return
        now = time.monotonic()
        shadow = ShadowJob(now, job.plan.wire.outputs, served, self.rules, self.count)
        shadow.carry(plan, job.rows, job.buffers, now + SECONDS)
        try:
            self.target.submit(shadow)
        except RefusedError:
            self.count(Agreement.SKIPPED)
