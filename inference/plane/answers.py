"""Inference answers of the Open Inference Protocol: from packed tensors to a body."""

import zlib
from functools import lru_cache
from math import prod

import numpy as np
import orjson

from inference.plane.batcher import Piece
from inference.plane.datatypes import BY_CODE, unpack_bytes
from inference.plane.packing import Buffer
from inference.plane.plans import Plan
from inference.plane.refusals import RefusedError

MIN_COMPRESSED, MAX_COMPRESSED = 1 << 10, 4 << 20
_NUMPY = orjson.OPT_SERIALIZE_NUMPY


def opening(service: str, version: str) -> bytes:
    """The first bytes of every answer of a version."""
    return b'{"model_name":%s,"model_version":%s,' % (orjson.dumps(service), orjson.dumps(version))


def write(start: bytes, plan: Plan, name: str, outputs: list[Piece]) -> tuple[bytes, int | None]:
    """The body, and the length of its JSON part when binary tensors follow. name: the request's id, "" for none.

    Raises RefusedError where an output cannot be written as wished.
    """
    if len(outputs) == 1 and not name and plan.binary[0] is not None:
        code, dims, data = outputs[0]
        if not plan.binary[0]:
            return b"%s%s}]}" % (_one(start, plan.heads[0], dims), _json(code, dims, data)), None
        if size := len(data):
            told = _one_binary(start, plan.heads[0], dims, size)
            return b"%s%s" % (told, data), len(told)
    parts: list[Buffer] = [start, b'"id":%s,"outputs":[' % orjson.dumps(name) if name else b'"outputs":[']
    tail: list[Buffer] = []
    comma = b""
    for head, binary, (code, dims, data) in zip(plan.heads, plan.binary, outputs, strict=True):
        shape = _shape(dims)
        if binary:
            size = len(data)
            parts.append(b'%s%s%s],"parameters":{"binary_data_size":%d}}' % (comma, head, shape, size))
            if size:
                tail.append(data)
        elif binary is None:
            parts.append(b"%s%s%s]}" % (comma, head, shape))  # it went into the client's shared memory
        else:
            parts.append(b'%s%s%s],"data":%s}' % (comma, head, shape, _json(code, dims, data)))
        comma = b","
    parts.append(b"]}")
    body = b"".join(parts)
    if not tail:
        return body, None
    # Joined, that is copied, at once: the data may lie in a slot that the next batch will take.
    return b"".join([body, *tail]), len(body)


def compressed(accepted: bytes, body: bytes) -> tuple[bytes, bytes]:
    """Header lines and body, compressed where the client takes it and it can pay.

    At the fastest level and within bounds, because the plane's one thread does it.
    """
    if not MIN_COMPRESSED <= len(body) <= MAX_COMPRESSED:
        return b"", body
    for part in accepted.lower().split(b","):
        coding, _, quality = part.partition(b";")
        coding = coding.strip()
        if coding in (b"gzip", b"deflate") and quality.replace(b" ", b"") not in (b"q=0", b"q=0.0"):
            packer = zlib.compressobj(1, zlib.DEFLATED, 31 if coding == b"gzip" else 15)
            packed = packer.compress(body) + packer.flush()
            return b"content-encoding: %s\r\nvary: accept-encoding\r\n" % coding, packed
    return b"", body


@lru_cache(4096)
def _one(start: bytes, head: bytes, dims: tuple[int, ...]) -> bytes:
    """An answer with one output, up to its data."""
    return b'%s"outputs":[%s%s],"data":' % (start, head, _shape(dims))


@lru_cache(4096)
def _one_binary(start: bytes, head: bytes, dims: tuple[int, ...], size: int) -> bytes:
    """The JSON part of an answer with one binary output."""
    binary = b'"parameters":{"binary_data_size":%d}' % size
    return b'%s"outputs":[%s%s],%s}]}' % (start, head, _shape(dims), binary)


@lru_cache(4096)
def _shape(dims: tuple[int, ...]) -> bytes:
    return b",".join([b"%d" % dim for dim in dims])


def _json(code: int, dims: tuple[int, ...], data: Buffer) -> bytes:
    """Flat, row-major, floats in their shortest form; NaN and infinity, which JSON lacks, become null."""
    if not len(data):
        return b"[]"
    datatype = BY_CODE[code]
    if datatype.array:
        return orjson.dumps(np.frombuffer(data, datatype.dtype), option=_NUMPY)
    if datatype.size:
        raise RefusedError(
            400, f"sending {datatype.name} data via JSON is not supported: ask for binary_data"
        )
    return orjson.dumps([element.decode(errors="replace") for element in unpack_bytes(data, prod(dims))])
