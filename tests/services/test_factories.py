"""Each factory makes a row that the database accepts."""

import pytest

from tests import factories

pytestmark = pytest.mark.django_db


def test_a_rollout_stands_on_a_stable_version_of_the_same_service() -> None:
    rollout = factories.rollout()
    assert rollout.from_version is not None
    assert rollout.from_version.service == rollout.to_version.service
    assert rollout.service.placements.get(role="stable").weight_percent == 100


def test_factories_share_the_default_tenant_service_and_node() -> None:
    first, second = factories.version(1), factories.version(2)
    factories.replica(first)
    factories.replica(second, state="crashed")
    assert first.service == second.service
    assert first.replicas.get().node == second.replicas.get().node


def test_a_tenant_gets_a_key_and_a_grant() -> None:
    assert factories.token("acme", secret="ph_x", scopes=("infer",)).scopes == ["infer"]
    assert factories.quota("acme", requests_per_second=5).requests_per_second == 5
    assert factories.strategy().steps == factories.STEPS
