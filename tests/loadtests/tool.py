"""Stands in for the load tool where a test is about the agent: sends nothing, writes the CSV it was asked for.

`python -m tests.loadtests.tool PARENT_PID CSV SECONDS CODE`; it ends with its parent, as the real start does.
"""

import sys
import time
from pathlib import Path

from console.loadtests.child import tie_to
from tests.loadtests.rows import csv_text

if __name__ == "__main__":
    parent, csv, seconds, code = int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    if not tie_to(parent):
        sys.exit(1)
    time.sleep(seconds)
    if code == 0:
        csv.write_text(csv_text())
    else:
        sys.stderr.write("the model is not there\n")
    sys.exit(code)
