"""The first and last bytes of a file as integers, as file type models read them.

The same rules as magika's feature extraction (`Magika._extract_features_from_seekable`), so labels agree with it.
"""

from typing import Annotated

import msgspec
import numpy as np

from inference.plane.datatypes import Array

Width = Annotated[int, msgspec.Meta(ge=0, le=65536)]


class ByteWindows(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="byte_windows", tag_field="kind"
):
    """Adds the public input `input` (BYTES, [n, 1]) as another way to give the graph's `output` (INT32).

    begin, end: bytes taken from each side. pad: the integer where there are none. strip: white space at both ends does
    not count. block: bytes looked at on each side before stripping.
    """

    input: str
    output: str
    begin: Width = 1024
    end: Width = 1024
    pad: int = 256
    strip: bool = True
    block: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 4096

    @property
    def width(self) -> int:
        return self.begin + self.end

    def run(self, files: list[bytes]) -> Array:
        """INT32 [len(files), begin + end]."""
        windows = np.full((len(files), self.width), self.pad, dtype=np.int32)
        for row, file in zip(windows, files, strict=True):
            head, tail = file[: self.block], file[-self.block :]
            if self.strip:
                head, tail = head.lstrip(), tail.rstrip()
            head, tail = head[: self.begin], tail[len(tail) - min(len(tail), self.end) :]
            row[: len(head)] = np.frombuffer(head, dtype=np.uint8)
            row[self.width - len(tail) :] = np.frombuffer(tail, dtype=np.uint8)
        return windows
