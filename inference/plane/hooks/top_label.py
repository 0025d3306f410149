"""The best label of each row and its score."""

from collections.abc import Sequence

import msgspec
import numpy as np

from inference.plane.datatypes import Array


class TopLabel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="top_label", tag_field="kind"):
    """Adds the public outputs `label` (BYTES, [n, 1]) and `score` (FP32, [n, 1]) beside the graph's output `input`.

    labels: a text file in the version's folder, one label a line in the order of the last dimension.
    """

    input: str
    labels: str
    label: str = "label"
    score: str = "score"

    def run(self, scores: Array, labels: Sequence[bytes]) -> tuple[list[bytes], Array]:
        best = np.argmax(scores, axis=-1).reshape(-1)
        values = np.take_along_axis(scores, np.expand_dims(best, -1), axis=-1)
        return [labels[index] for index in best], values.astype(np.float32).reshape(-1, 1)
