"""Anytime-valid evidence about two versions: one running number that may be looked at after every window.

In window i the canary answers n requests with C bad ones, stable m with S. Given that a bad answer happened, the chance
that it is the canary's is p(t) = t n / (t n + m), where t is the ratio of their bad shares. Against a hypothesis t0,

    M = mean over k of prod_i (p(t_k)/p(t0))^C ((1-p(t_k))/(1-p(t0)))^S

is an e-process: whatever the number of looks, and whatever the weights do between windows, P(M ever reaches 1/a) <= a
while the hypothesis holds (Ville 1939; Lindon and Malek, arXiv 2011.03567). It was made for rare events; at high shares
it errs on the safe side, because counts drawn without replacement vary less than binomial ones (Hoeffding 1963).
Without bad answers M stays 1: there is no division by zero and no empty vector.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

# The canary is worse than stable: these ratios over the hypothesis are bet on.
_WORSE = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
# The canary is not as bad as the harm that would not be accepted.
_BETTER = (0.1, 0.25, 0.4, 0.5, 0.6, 0.75)
# The canary's own bad share is below the floor: these multiples of the floor are bet on.
_CLEAN = (0.02, 0.1, 0.25, 0.5)


class Conclusion(StrEnum):
    WORSE = "worse"
    ACCEPTABLE = "acceptable"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Window:
    """Requests and bad ones of canary and stable in one span of time; spans do not overlap."""

    canary: int
    canary_bad: int
    stable: int
    stable_bad: int

    @property
    def compares(self) -> bool:
        """Something can be learned: both answered, and something was bad."""
        return self.canary > 0 and self.stable > 0 and self.canary_bad + self.stable_bad > 0


@dataclass(frozen=True, slots=True)
class Risk:
    """alpha: chance of calling an equal version worse. beta: of accepting one that is `harm` times as bad.

    harm: the ratio of bad shares that would not be accepted. Between 1 and harm both conclusions are right.
    floor: a bad share below which the canary is acceptable whatever stable's is; 0 asks for the comparison alone.
    Then two ways lead to acceptance and share beta.
    """

    alpha: float = 0.01
    beta: float = 0.05
    harm: float = 2.0
    floor: float = 0.0

    def shared_by(self, tests: int) -> "Risk":
        """The error budget split evenly: any of the tests may end the rollout, so their chances of error add up.

        beta is not split: a version is accepted only when every test accepts it.
        """
        return replace(self, alpha=self.alpha / max(1, tests))

    @property
    def beta_each(self) -> float:
        return self.beta / 2 if self.floor else self.beta


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the windows so far say. Logarithms of the products, for each ratio bet on."""

    risk: Risk = field(default_factory=Risk)
    worse: tuple[float, ...] = (0.0,) * len(_WORSE)
    better: tuple[float, ...] = (0.0,) * len(_BETTER)
    clean: tuple[float, ...] = (0.0,) * len(_CLEAN)
    worse_peak: float = 0.0
    better_peak: float = 0.0
    clean_peak: float = 0.0
    canary: int = 0
    canary_bad: int = 0
    stable: int = 0
    stable_bad: int = 0

    def after(self, window: Window) -> "Evidence":
        worse, better = self.worse, self.better
        if window.compares:
            worse = tuple(
                total + _log_ratio(window, 1.0, ratio) for total, ratio in zip(worse, _WORSE, strict=True)
            )
            harm = self.risk.harm
            better = tuple(
                total + _log_ratio(window, harm, harm * ratio)
                for total, ratio in zip(better, _BETTER, strict=True)
            )
        clean = self._cleaner(window)
        return Evidence(
            self.risk,
            worse,
            better,
            clean,
            max(self.worse_peak, _log_mean(worse)),
            max(self.better_peak, _log_mean(better)),
            max(self.clean_peak, _log_mean(clean)),
            self.canary + window.canary,
            self.canary_bad + window.canary_bad,
            self.stable + window.stable,
            self.stable_bad + window.stable_bad,
        )

    def _cleaner(self, window: Window) -> tuple[float, ...]:
        """Against "the canary's bad share is at least the floor": a bet on Bernoulli trials."""
        floor = self.risk.floor
        if not floor:
            return self.clean
        good = window.canary - window.canary_bad
        return tuple(
            total + window.canary_bad * math.log(part) + good * math.log((1.0 - part * floor) / (1.0 - floor))
            for total, part in zip(self.clean, _CLEAN, strict=True)
        )

    def after_all(self, windows: Iterable[Window]) -> "Evidence":
        evidence = self
        for window in windows:
            evidence = evidence.after(window)
        return evidence

    @property
    def e_worse(self) -> float:
        """Today's M against "not worse than stable"."""
        return math.exp(min(_log_mean(self.worse), 700.0))

    @property
    def e_acceptable(self) -> float:
        """The larger of the two ways to acceptance."""
        return math.exp(min(max(_log_mean(self.better), _log_mean(self.clean)), 700.0))

    @property
    def conclusion(self) -> Conclusion:
        """What was once proved stays proved; being worse counts before being acceptable."""
        if self.worse_peak >= -math.log(self.risk.alpha):
            return Conclusion.WORSE
        if max(self.better_peak, self.clean_peak) >= -math.log(self.risk.beta_each):
            return Conclusion.ACCEPTABLE
        return Conclusion.OPEN


def _log_ratio(window: Window, null: float, bet: float) -> float:
    """ln of one window's factor of M."""
    before = _canary_share(window, null)
    after = _canary_share(window, bet)
    return window.canary_bad * math.log(after / before) + window.stable_bad * math.log(
        (1.0 - after) / (1.0 - before)
    )


def _canary_share(window: Window, ratio: float) -> float:
    weighted = ratio * window.canary
    return weighted / (weighted + window.stable)


def _log_mean(logs: Sequence[float]) -> float:
    most = max(logs)
    return most + math.log(math.fsum(math.exp(one - most) for one in logs) / len(logs))


def interval(windows: Sequence[Window], alpha: float) -> tuple[float, float]:
    """A confidence sequence for the ratio of bad shares: right at all times together with chance 1 - alpha.

    The ratios that bets on both sides of them cannot reject. (0, inf) while nothing bad has been seen.
    """
    telling = [window for window in windows if window.compares]
    if not telling:
        return 0.0, math.inf
    counts = np.array([(one.canary, one.canary_bad, one.stable, one.stable_bad) for one in telling], float)
    canary, bad, stable, stable_bad = counts.T
    nulls = _GRID[:, None, None]
    bets = nulls * np.array((*_WORSE, *_BETTER))[None, :, None]
    before, after = (ratio * canary / (ratio * canary + stable) for ratio in (nulls, bets))
    logs = (bad * np.log(after / before) + stable_bad * np.log((1 - after) / (1 - before))).sum(axis=2)
    most = logs.max(axis=1)
    evidence = most + np.log(np.exp(logs - most[:, None]).mean(axis=1))
    kept = np.flatnonzero(evidence < -math.log(alpha))
    if not kept.size:
        return 0.0, math.inf
    low = 0.0 if kept[0] == 0 else float(_GRID[kept[0] - 1])
    high = math.inf if kept[-1] == _GRID.size - 1 else float(_GRID[kept[-1] + 1])
    return low, high


_GRID = 2.0 ** (np.arange(-28, 29) / 4)


def windows_to_conclude(
    *, risk: Risk, canary: float, stable: float, bad_share: float, ratio: float
) -> float | None:
    """Expected windows until a conclusion, when each has `canary` and `stable` requests and stable's bad share is
    `bad_share`; ratio: what the canary's share is in truth, as a multiple. None: this traffic tells nothing.

    Wald's identity: the logarithm that is needed over its growth in a window, plus what the average over bets costs.
    """
    if canary <= 0 or stable <= 0 or bad_share <= 0:
        return None
    bad_canary, bad_stable = min(1.0, bad_share * ratio) * canary, bad_share * stable
    fastest = 0.0
    for null, bets, chance in ((1.0, _WORSE, risk.alpha), (risk.harm, _BETTER, risk.beta_each)):
        needed = math.log(len(bets) / chance)
        for bet in bets:
            growth = _growth(canary, stable, bad_canary, bad_stable, null, null * bet)
            fastest = max(fastest, growth / needed)
    return 1.0 / fastest if fastest > 0 else None


def _growth(
    canary: float, stable: float, bad_canary: float, bad_stable: float, null: float, bet: float
) -> float:
    before = null * canary / (null * canary + stable)
    after = bet * canary / (bet * canary + stable)
    return bad_canary * math.log(after / before) + bad_stable * math.log((1.0 - after) / (1.0 - before))
