from collections import Counter
from itertools import pairwise

import pytest

from inference.plane.router import Wheel


@pytest.mark.parametrize("weights", [(90, 10), (99, 1), (50, 50), (34, 33, 33), (100,), (1, 2, 97)])
def test_shares_are_exact_over_every_hundred_requests(weights: tuple[int, ...]) -> None:
    wheel = Wheel(list(enumerate(weights)))
    for _ in range(3):
        assert Counter(wheel.next() for _ in range(100)) == dict(enumerate(weights))


def test_a_small_share_is_spread_evenly() -> None:
    wheel = Wheel([("stable", 90), ("canary", 10)])
    places = [index for index in range(200) if wheel.next() == "canary"]
    assert {later - earlier for earlier, later in pairwise(places)} == {10}


def test_a_weight_of_zero_gets_nothing_and_no_weight_at_all_is_said() -> None:
    wheel = Wheel([("warm", 0), ("stable", 100)])
    assert {wheel.next() for _ in range(50)} == {"stable"}
    assert Wheel([("warm", 0)]).next() is None
