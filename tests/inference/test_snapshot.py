"""Numbers, epochs and what a snapshot holds; where it goes is asked of a real Redis."""

import uuid
from datetime import timedelta

import pytest
import redis

from console.kit import clock
from console.tenants import actions as identity
from console.tenants.permissions import SYSTEM
from inference import snapshot
from inference.models import SnapshotState
from inference.protocol import SNAPSHOT_KEY, Snapshot, decode
from tests import factories
from tests.conftest import FrozenClock
from tests.services.redis import RedisServer

pytestmark = pytest.mark.django_db


def stored(server: RedisServer) -> Snapshot:
    raw = server.client.get(SNAPSHOT_KEY)
    assert isinstance(raw, bytes)
    return decode(raw, Snapshot)


def test_the_number_grows_only_with_the_content() -> None:
    first = snapshot.current()
    assert snapshot.current().number == first.number
    factories.stable(1)
    second = snapshot.current()
    assert second.number == first.number + 1
    assert second.epoch == first.epoch


def test_a_new_database_has_another_epoch() -> None:
    first = snapshot.current()
    SnapshotState.objects.all().delete()
    again = snapshot.current()
    assert again.epoch != first.epoch
    assert uuid.UUID(again.epoch)


def test_it_holds_what_is_placed_and_nothing_else() -> None:
    stable = factories.stable(1, replicas=2)
    factories.version(2)
    (service,) = snapshot.current().services
    assert (service.name, service.tenant) == ("file-type", "platform")
    assert [(v.number, v.replicas, v.weight_percent, v.digest) for v in service.versions] == [
        (1, 2, 100, stable.digest)
    ]


def test_only_inference_keys_that_work_are_in_it(frozen_clock: FrozenClock) -> None:
    good = factories.token("acme", secret="ph_good", scopes=("infer",))
    rest = factories.token("acme", secret="pht_rest", scopes=("read",))
    revoked = factories.token("acme", secret="ph_revoked", scopes=("infer",))
    revoked.revoked_at = clock.now()
    revoked.save()
    ending = factories.token("acme", secret="ph_ending", scopes=("infer",))
    ending.expires_at = clock.now() + timedelta(seconds=60)
    ending.save()
    known = {good.sha256, revoked.sha256, ending.sha256, rest.sha256}
    assert {key.sha256 for key in snapshot.current().keys} & known == {good.sha256, ending.sha256}
    frozen_clock.advance(61)
    assert {key.sha256 for key in snapshot.current().keys} & known == {good.sha256}


@pytest.mark.django_db(transaction=True)
def test_a_changed_quota_reaches_redis_without_being_asked(redis_server: RedisServer) -> None:
    redis_server.client.flushall()
    tenant = factories.tenant("acme")
    factories.service()
    identity.set_quota(tenant, "file-type", requests_per_second=5.0, actor=SYSTEM)
    found = stored(redis_server)
    assert [(quota.tenant, quota.requests_per_second) for quota in found.quotas] == [("acme", 5.0)]


@pytest.mark.django_db(transaction=True)
def test_a_slow_publisher_does_not_undo_a_newer_snapshot(redis_server: RedisServer) -> None:
    redis_server.client.flushall()
    old = snapshot.current()
    factories.stable(1)
    new = snapshot.publish()
    assert new.number > old.number
    assert not snapshot._store(old)
    assert stored(redis_server).number == new.number


@pytest.mark.django_db(transaction=True)
def test_a_wiped_redis_gets_it_again(redis_server: RedisServer) -> None:
    number = snapshot.publish().number
    redis_server.client.delete(SNAPSHOT_KEY)
    snapshot.publish()
    assert stored(redis_server).number == number


@pytest.mark.django_db(transaction=True)
def test_live_nodes_that_are_behind_are_told(redis_server: RedisServer) -> None:
    client: redis.Redis = redis_server.client
    client.flushall()
    factories.stable(1)
    factories.node("behind")
    factories.node("silent", silent_seconds=600)
    number = snapshot.publish().number
    assert client.llen("node.behind") == 1
    assert client.llen("node.silent") == 0
    factories.node("behind", snapshot_epoch=snapshot.current().epoch, snapshot_number=number)
    snapshot.publish()
    assert client.llen("node.behind") == 1, "who is there already is not told again"


def test_redis_away_costs_nothing_but_time() -> None:
    factories.stable(1)
    assert snapshot.publish().number > 0
