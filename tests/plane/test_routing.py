"""Who gets which version, and what counts as agreement: pure, by table."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.plane.batcher import Piece
from inference.plane.datatypes import DATATYPES, pack_bytes
from inference.plane.routing import Chooser, Mirror
from inference.plane.shadow import agree, default_rule, kept
from inference.protocol import HeaderMatch, RoutingSpec

WEIGHTS = {1: 90, 2: 10}


def test_without_routes_the_weights_are_exact() -> None:
    chooser = Chooser(WEIGHTS, None)
    assert chooser.is_plain
    assert Counter(chooser.choose("acme", {}) for _ in range(1000)) == {1: 900, 2: 100}


def test_a_tenant_of_the_cohort_always_meets_the_new_version() -> None:
    chooser = Chooser({1: 100, 2: 0}, RoutingSpec(2, tenants=("acme",)))
    assert {chooser.choose("acme", {}) for _ in range(20)} == {2}
    assert {chooser.choose("globex", {}) for _ in range(20)} == {1}


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        ({"x-beta": "yes"}, 2),
        ({"x-beta": "no"}, 1),
        ({"x-ring": "canary-7"}, 2),
        ({"x-ring": "my-canary"}, 1),
        ({}, 1),
    ],
)
def test_headers_choose_exactly_or_by_their_beginning(headers: dict[str, str], version: int) -> None:
    matches = (HeaderMatch("x-beta", exact="yes"), HeaderMatch("x-ring", prefix="canary"))
    chooser = Chooser({1: 100, 2: 0}, RoutingSpec(2, matches))
    assert chooser.headers == {"x-beta", "x-ring"}
    assert chooser.choose("acme", headers) == version


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=50, unique=True))
def test_who_met_the_new_version_stays_with_it_as_its_weight_grows(tenants: list[str]) -> None:
    met: set[str] = set()
    for share in (5, 20, 50, 80):
        chooser = Chooser({1: 100 - share, 2: share}, RoutingSpec(2, sticky="tenant"))
        now = {tenant for tenant in tenants if chooser.choose(tenant, {}) == 2}
        assert met <= now
        assert now == {tenant for tenant in tenants if chooser.choose(tenant, {}) == 2}
        met = now


def test_sticky_shares_come_near_the_weight() -> None:
    chooser = Chooser({1: 80, 2: 20}, RoutingSpec(2, sticky="header:x-session"))
    met = Counter(chooser.choose("acme", {"x-session": f"s{number}"}) for number in range(20_000))
    assert 0.19 <= met[2] / 20_000 <= 0.21


def test_a_request_without_the_sticky_header_follows_the_weights() -> None:
    chooser = Chooser({1: 80, 2: 20}, RoutingSpec(2, sticky="header:x-session"))
    assert Counter(chooser.choose("acme", {}) for _ in range(100)) == {1: 80, 2: 20}


@pytest.mark.parametrize("percent", [0, 1, 33, 50, 100])
def test_a_mirror_takes_exactly_its_share(percent: int) -> None:
    mirror = Mirror(percent)
    assert sum(mirror.next() for _ in range(1000)) == percent * 10


def scores(*rows: list[float]) -> Piece:
    data = np.array(rows, dtype="<f4")
    return DATATYPES["FP32"].code, data.shape, data.tobytes()


@pytest.mark.parametrize(
    ("rule", "one", "other", "same"),
    [
        ("close", scores([0.1, 0.9]), scores([0.1001, 0.9]), True),
        ("close", scores([0.1, 0.9]), scores([0.2, 0.8]), False),
        ("close:0.2", scores([0.1, 0.9]), scores([0.2, 0.8]), True),
        ("close", scores([float("nan")]), scores([float("nan")]), True),
        ("label", scores([0.1, 0.9], [0.6, 0.4]), scores([0.4, 0.6], [0.9, 0.1]), True),
        ("label", scores([0.1, 0.9]), scores([0.9, 0.1]), False),
        ("rank:2", scores([0.1, 0.9, 0.5]), scores([0.2, 0.7, 0.6]), True),
        ("rank:2", scores([0.1, 0.9, 0.5]), scores([0.6, 0.7, 0.2]), False),
        ("exact", scores([0.1]), scores([0.1]), True),
        ("exact", scores([0.1]), scores([0.1001]), False),
        ("ignore", scores([0.1]), scores([9.9], [9.9]), True),
        ("close", scores([0.1]), scores([0.1], [0.1]), False),
    ],
)
def test_what_counts_as_agreement(rule: str, one: Piece, other: Piece, same: bool) -> None:
    assert agree(rule, one, other) is same


def test_texts_agree_only_when_equal() -> None:
    code = DATATYPES["BYTES"].code
    png, gif = ((code, (1, 1), pack_bytes([text])) for text in (b"png", b"gif"))
    assert agree("label", png, png)
    assert not agree("close", png, gif)


def test_a_rule_that_does_not_exist_is_an_error_and_no_agreement() -> None:
    with pytest.raises(ValueError, match="no rule nearly"):
        agree("nearly", scores([0.1]), scores([0.1]))


def test_the_rule_follows_the_output() -> None:
    assert default_rule("FP32", labelled=True) == "label"
    assert default_rule("FP32", labelled=False) == "close"
    assert default_rule("BYTES", labelled=False) == "exact"


def test_an_answer_too_large_to_keep_is_not_compared() -> None:
    assert kept([(1, (1,), bytes(8 << 20))]) is None
