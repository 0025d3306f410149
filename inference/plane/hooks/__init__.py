"""Steps before and after the graph that a contract may declare. One file for each kind, one line here."""

from inference.plane.hooks.byte_windows import ByteWindows
from inference.plane.hooks.top_label import TopLabel

PREPROCESS: dict[str, type[ByteWindows]] = {"byte_windows": ByteWindows}
POSTPROCESS: dict[str, type[TopLabel]] = {"top_label": TopLabel}
