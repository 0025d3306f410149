"""The canary judge by simulation, beside Argo's default gate and a fixed threshold: `python -m tests.bench.judge`.

Each run is a rollout of up to 240 windows of 30 s with weights 5, 10, 25 and 50 %; stable has 1 % errors. Seeded, so
the table is the same wherever it is made. `--write` puts it into docs/performance.md.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rollouts.evidence import Conclusion, Evidence, Risk, Window

LOOKS, RUNS = 240, 2000
WEIGHTS = (5, 10, 25, 50)
STABLE_SHARE = 0.01
PER_WINDOW = 300  # requests of both versions in one window
PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
BEGIN, END = "<!-- judge: begin -->", "<!-- judge: end -->"

# True: stop the version. One object for each run, fed window by window.
Judge = Callable[[Window], bool]


def evidence() -> Judge:
    """Ours: anytime-valid, alpha 1 %."""
    state = [Evidence(Risk())]

    def look(window: Window) -> bool:
        state[0] = state[0].after(window)
        return state[0].conclusion is Conclusion.WORSE

    return look


def argo_default() -> Judge:
    """Argo Rollouts' own example: success rate of a window at least 95 %, failureLimit 0."""
    return lambda window: window.canary > 0 and 1 - window.canary_bad / window.canary < 0.95


def threshold() -> Judge:
    """A fixed limit of twice stable's share on the errors of a window, the first breach stops."""
    return lambda window: window.canary > 0 and window.canary_bad / window.canary > 2 * STABLE_SHARE


JUDGES = {
    "this judge": evidence,
    "Argo's example gate (success >= 95 %)": argo_default,
    "fixed limit 2 %": threshold,
}


@dataclass(frozen=True, slots=True)
class Result:
    """stopped: share of the runs. requests: median of the canary's until then, of those that were stopped."""

    stopped: float
    requests: float


def simulate(make: Callable[[], Judge], ratio: float, *, runs: int = RUNS, seed: int = 0) -> Result:
    rng = np.random.default_rng(seed)
    stopped, needed = 0, []
    weights = np.repeat(WEIGHTS, LOOKS // len(WEIGHTS)) / 100
    for _ in range(runs):
        canary = rng.poisson(PER_WINDOW * weights)
        stable = rng.poisson(PER_WINDOW * (1 - weights))
        bad = rng.binomial(canary, min(1.0, STABLE_SHARE * ratio))
        stable_bad = rng.binomial(stable, STABLE_SHARE)
        look, seen = make(), 0
        for n, c, m, s in zip(
            canary.tolist(), bad.tolist(), stable.tolist(), stable_bad.tolist(), strict=True
        ):
            seen += n
            if look(Window(n, c, m, s)):
                stopped += 1
                needed.append(seen)
                break
    return Result(stopped / runs, float(np.median(needed)) if needed else float("nan"))


def table(runs: int = RUNS) -> str:
    lines = [
        f"{runs} seeded runs for each cell, {LOOKS} looks of 30 s, {PER_WINDOW} requests a window, weights 5 to 50 %,"
        f" stable {STABLE_SHARE:.0%} errors. Made by `python -m tests.bench.judge --write`.",
        "",
        "| judge | equal version stopped | 2 times the errors: caught, canary requests | 3 times | 10 times |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, make in JUDGES.items():
        equal = simulate(make, 1.0, runs=runs)
        cells = [f"{equal.stopped:.2%}"]
        for ratio in (2.0, 3.0, 10.0):
            found = simulate(make, ratio, runs=runs, seed=int(ratio))
            told = f"{found.stopped:.1%}, {found.requests:,.0f}" if found.stopped else "0 %"
            cells.append(told)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write(text: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    PAGE.write_text(f"{page[:begin]}\n{text}\n{page[end:]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    text = table(given.runs)
    print(text)
    if given.write:
        write(text)


if __name__ == "__main__":
    main()
