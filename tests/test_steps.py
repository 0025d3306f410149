"""The steps of `make up` and `make test` say their name while they run, and only where somebody looks."""

import os
import subprocess
from pathlib import Path

from tests.promises import ROOT


def say(tmp_path: Path, *, on: int) -> None:
    folder = tmp_path / "tools"
    folder.mkdir(exist_ok=True)
    (folder / "lib.sh").write_bytes((ROOT / ".ci" / "lib.sh").read_bytes())
    script = f'. "{folder / "lib.sh"}"; step "packages" true'
    subprocess.run(["bash", "-c", script], stdout=on, check=True, timeout=20)


def test_a_terminal_shows_which_step_is_under_way(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    try:
        say(tmp_path, on=theirs)
        shown = os.read(ours, 4096).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    under_way, done = shown.split("\r", 1)
    assert under_way.split() == ["packages", "..."]
    assert "packages" in done
    assert done.split()[-1] == "s"


def test_a_log_gets_one_line_a_step(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        say(tmp_path, on=out.fileno())
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["packages"]
    assert "\r" not in log.read_text()
