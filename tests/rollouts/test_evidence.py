"""The judge by simulation: seeded, counted, never timed. The long tables are made by the benchmark."""

import math

import numpy as np
import pytest

from rollouts.evidence import Conclusion, Evidence, Risk, Window, interval, windows_to_conclude

LOOKS = 240
WEIGHTS = (5, 10, 25, 50)


def simulate(
    rng: np.random.Generator, *, ratio: float, share: float, per_window: int, risk: Risk | None = None
) -> tuple[Conclusion, int]:
    """One rollout of up to 240 looks with growing weights: its conclusion and the requests until then."""
    evidence, requests = Evidence(risk or Risk()), 0
    for look in range(LOOKS):
        weight = WEIGHTS[look * len(WEIGHTS) // LOOKS]
        canary = int(rng.poisson(per_window * weight / 100))
        stable = int(rng.poisson(per_window * (100 - weight) / 100))
        bad = int(rng.binomial(canary, min(1.0, share * ratio)))
        evidence = evidence.after(Window(canary, bad, stable, int(rng.binomial(stable, share))))
        requests += canary + stable
        if evidence.conclusion is not Conclusion.OPEN:
            break
    return evidence.conclusion, requests


@pytest.mark.parametrize(("share", "per_window"), [(0.01, 600), (0.05, 60), (0.3, 60), (0.6, 20)])
def test_an_equal_version_is_called_worse_in_at_most_one_percent(share: float, per_window: int) -> None:
    rng = np.random.default_rng(int(share * 1000) + per_window)
    runs = 2000 if per_window <= 60 else 1000
    worse = sum(
        simulate(rng, ratio=1.0, share=share, per_window=per_window)[0] is Conclusion.WORSE
        for _ in range(runs)
    )
    assert worse <= 0.01 * runs


def test_a_harmful_version_is_accepted_in_at_most_five_percent() -> None:
    rng = np.random.default_rng(7)
    found = [simulate(rng, ratio=2.0, share=0.02, per_window=600)[0] for _ in range(1000)]
    assert found.count(Conclusion.ACCEPTABLE) <= 50
    assert found.count(Conclusion.WORSE) >= 900


def test_ten_times_the_errors_are_found_in_fewer_requests_than_two_times() -> None:
    rng = np.random.default_rng(11)
    needed = {
        ratio: float(
            np.median([simulate(rng, ratio=ratio, share=0.01, per_window=600)[1] for _ in range(100)])
        )
        for ratio in (2.0, 3.0, 10.0)
    }
    assert needed[10.0] < needed[3.0] < needed[2.0]


def test_without_bad_answers_nothing_is_concluded() -> None:
    evidence = Evidence().after_all([Window(1000, 0, 9000, 0)] * 100)
    assert evidence.conclusion is Conclusion.OPEN
    assert evidence.e_worse == evidence.e_acceptable == 1.0
    assert interval([Window(1000, 0, 9000, 0)], 0.05) == (0.0, math.inf)


def test_a_side_without_requests_tells_nothing() -> None:
    before = Evidence()
    after = before.after(Window(0, 0, 500, 50)).after(Window(500, 50, 0, 0))
    assert (after.worse, after.better) == (before.worse, before.better)
    assert (after.canary, after.stable_bad) == (500, 50)


def test_a_proof_is_not_taken_back_by_later_windows() -> None:
    bad = Evidence().after_all([Window(100, 30, 900, 9)] * 3)
    assert bad.conclusion is Conclusion.WORSE
    assert bad.after_all([Window(1000, 0, 1000, 100)] * 20).conclusion is Conclusion.WORSE


def test_the_order_of_windows_does_not_matter_to_the_products() -> None:
    windows = [Window(50, 1, 450, 4), Window(250, 2, 250, 3), Window(10, 0, 90, 2)]
    one, other = Evidence().after_all(windows), Evidence().after_all(reversed(windows))
    assert one.worse == pytest.approx(other.worse)


def test_one_window_by_hand() -> None:
    """n = m, one bad answer of the canary: p(1) = 1/2, p(2) = 2/3, so the factor for ratio 2 is 4/3."""
    evidence = Evidence().after(Window(10, 1, 10, 0))
    assert math.exp(evidence.worse[2]) == pytest.approx(4 / 3)
    assert evidence.e_worse == pytest.approx(np.mean([2 * r / (1 + r) for r in (1.25, 1.5, 2, 3, 5, 10)]))


def test_several_tests_share_the_chance_of_a_false_alarm() -> None:
    assert Risk(alpha=0.01).shared_by(4) == Risk(alpha=0.0025)


def test_the_interval_holds_the_truth_at_every_look_at_once() -> None:
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(100):
        windows: list[Window] = []
        inside = True
        for _look in range(20):
            canary, stable = int(rng.poisson(60)), int(rng.poisson(540))
            bad, stable_bad = int(rng.binomial(canary, 0.06)), int(rng.binomial(stable, 0.02))
            windows.append(Window(canary, bad, stable, stable_bad))
            low, high = interval(windows, 0.05)
            inside &= low <= 3.0 <= high
        missed += not inside
    assert missed <= 5
    assert low > 1.0


def test_the_bake_time_foretold_is_near_the_one_simulated() -> None:
    rng = np.random.default_rng(5)
    foretold = windows_to_conclude(risk=Risk(), canary=60, stable=540, bad_share=0.01, ratio=3.0)
    assert foretold is not None
    looks = []
    for _ in range(200):
        evidence, look = Evidence(), 0
        while evidence.conclusion is Conclusion.OPEN and look < 500:
            canary, stable = int(rng.poisson(60)), int(rng.poisson(540))
            window = Window(canary, int(rng.binomial(canary, 0.03)), stable, int(rng.binomial(stable, 0.01)))
            evidence, look = evidence.after(window), look + 1
        looks.append(look)
    assert foretold / 2 <= np.mean(looks) <= foretold * 2
    assert windows_to_conclude(risk=Risk(), canary=0, stable=540, bad_share=0.01, ratio=3.0) is None
