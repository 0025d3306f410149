"""One output of a batch, cut into its requests' rows."""

from math import prod

from inference.plane.batcher import Job, Piece
from inference.plane.datatypes import BY_CODE, bytes_offsets


def cut(piece: Piece, jobs: list[Job], rows: int) -> list[Piece]:
    code, dims, data = piece
    inner = dims[1:]
    pieces: list[Piece] = []
    if BY_CODE[code].size:
        size, at = len(data) // rows if rows else 0, 0
        for job in jobs:
            end = at + job.rows * size
            pieces.append((code, (job.rows, *inner), data[at:end]))
            at = end
        return pieces
    elements, at = prod(inner), 0
    for job, end in zip(jobs, bytes_offsets(data, (job.rows * elements for job in jobs)), strict=True):
        pieces.append((code, (job.rows, *inner), data[at:end]))
        at = end
    return pieces
