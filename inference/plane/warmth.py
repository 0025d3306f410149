"""What first runs of a model showed."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Warmth:
    """batch_safe: joined rows give the answers of single ones. seconds: of a warm run, by rows. note: for the status.

    row_bytes: private memory that grew while the largest size ran, by row.
    """

    batch_safe: bool = True
    note: str = ""
    seconds: dict[int, float] = field(default_factory=dict)
    row_bytes: int = 0
