"""The demo's secrets file: made once, kept, and made anew when somebody broke it."""

import json

import pytest

from inference.demo import seed

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def identities_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions take seconds, and quotas need them."""
    monkeypatch.setattr(seed, "VERSIONS", [])
    monkeypatch.setattr(seed, "QUOTAS", {})


def test_secrets_are_kept_over_a_second_start() -> None:
    assert len(list(seed.make())) > 5
    kept = json.loads(seed.path().read_text())
    assert list(seed.make()) == []
    assert json.loads(seed.path().read_text()) == kept


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b'{"users": []}', b'{"tenants": 5}', b'{"token": {}}', b"null"]
)
def test_a_broken_file_costs_new_keys_and_no_account(content: bytes) -> None:
    list(seed.make())
    seed.path().write_bytes(content)
    made = list(seed.make())
    assert made == ["REST token ci", *(f"inference key of {slug}" for slug in seed.TENANTS)]
    kept = json.loads(seed.path().read_text())
    assert kept["token"].startswith("pht_") and kept["tenants"]["acme"]["infer"].startswith("ph_")
