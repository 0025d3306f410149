"""Start of the load tool: tie its life to its parent's, then be the tool.

`python -m console.loadtests.child PARENT_PID ARGUMENTS OF pilothouse ...`. A killed agent cannot stop what it started,
so the kernel does: a load that nobody watches would go on to its end and be in nobody's report.
"""

import ctypes
import os
import signal
import sys

from console.cli.main import run

_PR_SET_PDEATHSIG = 1  # prctl(2)


def tie_to(parent: int) -> bool:
    """End with the parent; False when it died before the wish was made."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    return os.getppid() == parent


def main(parent: int, arguments: list[str]) -> int:
    return run(arguments) if tie_to(parent) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
