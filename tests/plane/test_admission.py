import hashlib
import random

import pytest

from inference.plane.admission import Admission, Grant, Rate
from inference.plane.refusals import RefusedError
from inference.protocol import KeySpec, QuotaSpec, ServiceSpec, Snapshot


def snapshot(*quotas: QuotaSpec, expires_at: float | None = None) -> Snapshot:
    digest = hashlib.sha256(b"ph_secret").hexdigest()
    return Snapshot(
        "e",
        1,
        services=(ServiceSpec("file-type", "platform", ()), ServiceSpec("private", "platform", ())),
        keys=(KeySpec(digest, "acme", expires_at),),
        quotas=quotas,
    )


def applied(*quotas: QuotaSpec, now: float = 100.0, expires_at: float | None = None) -> Admission:
    admission = Admission(lambda: now)
    admission.apply(snapshot(*quotas, expires_at=expires_at), open_access=False)
    return admission


@pytest.mark.parametrize(
    "header", [None, b"", b"Bearer", b"Bearer ", b"Bearer ph_wrong", b"Basic ph_secret", b"ph_secret"]
)
def test_anything_but_a_known_bearer_key_is_401(header: bytes | None) -> None:
    with pytest.raises(RefusedError) as refused:
        applied().tenant_of(header)
    assert refused.value.status == 401


def test_a_known_key_names_its_tenant_until_it_expires() -> None:
    assert applied().tenant_of(b"bearer  ph_secret ") == "acme"
    assert applied(expires_at=100.5).tenant_of(b"Bearer ph_secret") == "acme"
    with pytest.raises(RefusedError, match="expired"):
        applied(expires_at=100.0).tenant_of(b"Bearer ph_secret")


def test_only_owner_and_tenants_with_a_quota_may_call() -> None:
    admission = applied(QuotaSpec("acme", "file-type", None, None, None))
    assert admission.may("acme", "file-type") and admission.may("platform", "private")
    assert not admission.may("acme", "private") and not admission.may("acme", "unknown")
    assert admission.grant("globex", "file-type") is None


@pytest.mark.parametrize(("rate", "burst"), [(10.0, 1), (10.0, 5), (0.5, 2), (3.0, 7), (1000.0, 100)])
def test_no_window_ever_admits_more_than_burst_plus_rate(rate: float, burst: int) -> None:
    rng, limit, now, admitted = random.Random(3), Rate(rate, burst), 50.0, []
    for _ in range(3000):
        now += rng.expovariate(rate * 3)
        if limit.take(now) == 0.0:
            admitted.append(now)
    for first in range(len(admitted)):
        for last in range(first, min(first + 60, len(admitted))):
            span = admitted[last] - admitted[first]
            assert last - first + 1 <= burst + rate * span + 1e-6
    assert len(admitted) >= rate * (now - 50.0) * 0.7


def test_a_refused_request_is_told_when_to_come_back_and_then_gets_in() -> None:
    limit = Rate(4.0, 2)
    assert [limit.take(10.0), limit.take(10.0)] == [0.0, 0.0]
    wait = limit.take(10.0)
    assert wait == pytest.approx(0.25)
    assert limit.take(10.0 + wait - 0.01) > 0 and limit.take(10.0 + wait) == 0.0
    assert limit.left(10.0 + wait) == 0 and limit.left(99.0) == 2


def test_the_concurrency_limit_is_exact_and_does_not_spend_the_rate() -> None:
    grant = Grant("acme", "s", QuotaSpec("acme", "s", 1.0, 3, 2))
    grant.enter(0.0)
    grant.enter(0.0)
    with pytest.raises(RefusedError) as refused:
        grant.enter(0.0)
    assert refused.value.status == 429
    assert refused.value.limit is not None and refused.value.limit.name == "concurrency"
    grant.leave()
    grant.enter(0.0)
    with pytest.raises(RefusedError, match="concurrency limit is 2: 0 are left"):
        grant.enter(0.0)
    grant.leave()
    with pytest.raises(RefusedError) as refused:
        grant.enter(0.0)
    assert refused.value.limit is not None and refused.value.limit.name == "rate"


def test_a_new_snapshot_keeps_what_is_spent_and_what_is_in_hand() -> None:
    quota = QuotaSpec("acme", "file-type", 1.0, 2, 5)
    admission = applied(quota)
    grant = admission.grant("acme", "file-type")
    assert grant is not None
    grant.enter(0.0)
    grant.enter(0.0)
    admission.apply(snapshot(quota), open_access=False)
    assert admission.grant("acme", "file-type") is grant
    with pytest.raises(RefusedError):
        grant.enter(0.0)
    admission.apply(snapshot(QuotaSpec("acme", "file-type", None, None, 2)), open_access=False)
    assert admission.grant("acme", "file-type") is grant and grant.active == 2
    with pytest.raises(RefusedError, match="concurrency"):
        grant.enter(0.0)


def test_a_raised_rate_counts_at_once_and_a_lowered_one_locks_nobody_out() -> None:
    grant = Grant("acme", "s", QuotaSpec("acme", "s", 0.001, 17, None))
    for _ in range(17):
        grant.enter(1000.0)
    grant.set_quota(QuotaSpec("acme", "s", 200.0, 400, None), 1000.0)
    for _ in range(400 - 17):
        grant.enter(1000.0)
    with pytest.raises(RefusedError, match=r"try again in 0\.0"):
        grant.enter(1000.0)
    grant.set_quota(QuotaSpec("acme", "s", 1.0, 5, None), 1000.0)
    with pytest.raises(RefusedError, match=r"try again in 1\.00 s"):
        grant.enter(1000.0)


def test_a_rate_of_zero_admits_nothing() -> None:
    grant = Grant("acme", "s", QuotaSpec("acme", "s", 0.0, None, None))
    with pytest.raises(RefusedError) as refused:
        grant.enter(5.0)
    assert refused.value.status == 429


def test_open_access_needs_no_key() -> None:
    admission = Admission()
    admission.apply(snapshot(), open_access=True)
    assert admission.tenant_of(None) == "local"
    assert admission.grant("local", "private") is not None and admission.grant("local", "unknown") is None
