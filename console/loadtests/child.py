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


def main(parent: int, arguments: list[str]) -> int:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the wish was made
        return 1
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
