"""Numbers as people say them."""

_STEPS = ((60, "s", 1), (3600, "min", 60), (86400, "h", 3600), (86400 * 60, "d", 86400))


def percent(ratio: float) -> str:
    """A ratio as every page, message and answer prints it: 17.0, 0.25, 0. The unit follows after a space."""
    value = ratio * 100
    if value == 0:
        return "0"
    return f"{value:.2f}" if abs(value) < 1 else f"{value:.1f}"


def span(seconds: float | None) -> str:
    """Seconds in the unit a person would choose: 42 s, 6 min, 3 h, 5 d."""
    if seconds is None:
        return "–"
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    for below, unit, divisor in _STEPS:
        if seconds < below:
            return f"{int(seconds // divisor)} {unit}"
    return f"{int(seconds // 86400)} d"
