"""A CSV as the load tool writes it."""


def csv_text(*, rows: int = 200, failed: int = 4, milliseconds: float = 10.0) -> str:
    """One request every 50 ms; the durations rise evenly from `milliseconds` to three times that."""
    lines = ["ts,scenario,duration_ns,status"]
    for number in range(rows):
        took = milliseconds * (1 + 2 * number / rows)
        status = "503" if number < failed else "200"
        lines.append(f"{1_700_000_000_000_000_000 + number * 50_000_000},main,{took * 1e6:.0f},{status}")
    return "\n".join([*lines, ""])
