"""What a process that runs strangers' models may still do."""

import resource


def lower(limit: int, value: int) -> None:
    """Both ends of a limit, never above what is allowed already."""
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))
