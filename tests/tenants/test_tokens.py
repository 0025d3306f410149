"""Secrets: hashed, scoped, ending in time, and found nowhere but in the one answer that made them."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from console.audit.models import Entry
from console.kit.errors import Conflict, Forbidden, Invalid, NotFound
from console.tenants import actions, tokens
from console.tenants.models import Membership, Role, Token
from tests.cast import Bearer, Cast
from tests.conftest import FrozenClock

ME = "/api/v1/me"


def everything_stored() -> str:
    """Every value of every row in the database."""
    found: list[str] = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            found.extend(str(row) for row in cursor.fetchall())
    return "\n".join(found)


def test_secrets_are_long_prefixed_and_different() -> None:
    made = {tokens.mint(tokens.REST_PREFIX) for _ in range(100)}
    assert len(made) == 100
    assert all(secret.startswith("pht_") and len(secret) == 47 for secret in made)
    assert not tokens.is_inference_key("pht_x")
    assert tokens.is_inference_key(tokens.mint("ph_"))


def test_only_the_hash_of_a_secret_is_kept(cast: Cast, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        rest, key = cast.token("read"), cast.token("infer")
        assert rest.api().get(ME).status_code == 200
    assert (rest.token.sha256, rest.token.hint) == (tokens.digest(rest.secret), rest.secret[:10])
    assert key.secret.startswith("ph_")
    stored, logged = everything_stored(), caplog.text
    assert rest.token.sha256 in stored
    for secret in (rest.secret, key.secret):
        assert secret not in stored
        assert secret not in logged


def test_a_token_speaks_for_its_tenant(cast: Cast) -> None:
    answer = cast.token("read", "rollouts:write").api().get(ME)
    assert answer.json() == {
        "name": "token:ci",
        "is_superuser": False,
        "scopes": ["read", "rollouts:write"],
        "roles": {"platform": "admin"},
    }


@pytest.mark.parametrize(
    ("secret", "sentence"),
    [
        ("pht_" + "x" * 43, "not known"),
        ("", "not known"),
        ("pht_" + "x" * 5000, "not known"),
        ("ph_" + "x" * 43, "inference key"),
        ("pht_\xff\xfe", "not known"),
    ],
)
def test_a_wrong_secret_is_refused_with_the_reason(cast: Cast, secret: str, sentence: str) -> None:
    answer = Bearer(Token(), secret).api().get(ME)
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert answer.json()["code"] == "not_authenticated"
    assert sentence in answer.json()["detail"]


def test_an_inference_key_opens_no_rest(cast: Cast) -> None:
    answer = cast.token("infer").api().get(ME)
    assert answer.status_code == 401
    assert "pht_" in answer.json()["detail"]


def test_a_token_ends_at_its_time(cast: Cast, frozen_clock: FrozenClock) -> None:
    ends = frozen_clock.at + timedelta(hours=1)
    token, secret = actions.create_token(
        cast.platform, name="short", scopes=["read"], expires_at=ends, actor=cast.ada.actor
    )
    api = Bearer(token, secret).api()
    assert api.get(ME).status_code == 200
    frozen_clock.advance(3600)
    answer = api.get(ME)
    assert (answer.status_code, answer.json()["detail"]) == (401, "This token has expired.")
    assert list(Token.objects.active()) == []


def test_a_revoked_token_is_refused_at_once(cast: Cast) -> None:
    bearer = cast.token("read")
    actions.revoke_token(bearer.token, actor=cast.ida.actor, reason="leaked")
    assert bearer.api().get(ME).json()["detail"] == "This token was revoked."
    first = Token.objects.get().revoked_at
    actions.revoke_token(bearer.token, actor=cast.ida.actor, reason="again")
    assert Token.objects.get().revoked_at == first
    assert Entry.objects.filter(verb="token.revoke").count() == 1


def test_tokens_of_who_left_or_was_deactivated_end_with_them(cast: Cast) -> None:
    bearer, key = cast.token("read", maker=cast.ada), cast.token("infer", maker=cast.ada)
    cast.ada.user.is_active = False
    cast.ada.user.save()
    assert "left the tenant" in bearer.api().get(ME).json()["detail"]
    cast.ada.user.is_active = True
    cast.ada.user.save()
    assert bearer.api().get(ME).status_code == 200
    Membership.objects.filter(user=cast.ada.user).delete()
    assert bearer.api().get(ME).status_code == 401
    assert key.token in Token.objects.active().inference_keys()


def test_use_is_noted_at_most_once_a_minute(cast: Cast, frozen_clock: FrozenClock) -> None:
    bearer = cast.token("read")
    bearer.api().get(ME)
    first = Token.objects.get().last_used_at
    assert first == frozen_clock.at
    frozen_clock.advance(59)
    bearer.api().get(ME)
    assert Token.objects.get().last_used_at == first
    frozen_clock.advance(1)
    bearer.api().get(ME)
    assert Token.objects.get().last_used_at == frozen_clock.at


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "x" * 121}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["fly"]}, "scopes"),
        ({"scopes": ["infer", "read"]}, "scopes"),
        ({"scopes": ["tenants:all"]}, "scopes"),
        ({"scopes": ["tenants:write"]}, "scopes"),
        ({"scopes": ["read", "tenants:all"]}, "scopes"),
    ],
)
def test_a_wrong_token_is_refused_by_field(cast: Cast, wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        actions.create_token(
            cast.platform, **{"name": "x", "scopes": ["read"], **wrong}, actor=cast.ada.actor
        )
    assert list(refused.value.fields) == [field]
    assert not Token.objects.exists()


def test_an_expiry_in_the_past_is_refused(cast: Cast, frozen_clock: FrozenClock) -> None:
    with pytest.raises(Invalid) as refused:
        actions.create_token(
            cast.platform, name="x", scopes=["read"], expires_at=frozen_clock.at, actor=cast.ada.actor
        )
    assert list(refused.value.fields) == ["expires_at"]


def test_viewers_make_no_tokens_and_strangers_see_no_tenant(cast: Cast) -> None:
    with pytest.raises(Forbidden):
        actions.create_token(cast.platform, name="x", scopes=["read"], actor=cast.ben.actor)
    with pytest.raises(NotFound):
        actions.create_token(cast.platform, name="x", scopes=["read"], actor=cast.cleo.actor)


def test_a_token_hands_out_only_what_it_has(cast: Cast) -> None:
    maker = cast.token("tenants:write", "models:write").actor
    actions.create_token(cast.platform, name="x", scopes=["models:write"], actor=maker)
    actions.create_token(cast.platform, name="x", scopes=["infer"], actor=maker)
    with pytest.raises(Invalid):
        actions.create_token(cast.platform, name="x", scopes=["rollouts:write"], actor=maker)
    with pytest.raises(Forbidden):
        actions.create_token(cast.platform, name="x", scopes=["read"], actor=cast.token("models:write").actor)


def test_an_operator_cannot_revoke_what_only_an_admin_could_make(cast: Cast) -> None:
    token = cast.token("tenants:write").token
    verbs: tuple[Callable[..., object], ...] = (
        actions.preview_revoke_token,
        actions.revoke_token,
        actions.rotate_token,
    )
    for verb in verbs:
        with pytest.raises(Forbidden):
            verb(token, actor=cast.ada.actor)
    assert Token.objects.active().count() == 1


def test_rotation_gives_a_new_secret_and_time_to_change_over(cast: Cast, frozen_clock: FrozenClock) -> None:
    old = cast.token("read")
    successor, secret = actions.rotate_token(old.token, actor=cast.ida.actor)
    new = Bearer(successor, secret)
    assert (successor.name, successor.scopes, successor.expires_at) == ("ci", ["read"], None)
    assert old.api().get(ME).status_code == new.api().get(ME).status_code == 200
    frozen_clock.advance(3600)
    assert old.api().get(ME).status_code == 401
    assert new.api().get(ME).status_code == 200
    with pytest.raises(Conflict) as refused:
        actions.rotate_token(old.token, actor=cast.ida.actor)
    assert refused.value.code == "not_active"
    entry: Any = Entry.objects.get(verb="token.rotate")
    assert entry.after["hint"] == successor.hint
    assert secret not in str(entry.after)


def test_rotation_keeps_the_length_of_life(cast: Cast, frozen_clock: FrozenClock) -> None:
    token, _ = actions.create_token(
        cast.platform,
        name="x",
        scopes=["read"],
        expires_at=frozen_clock.at + timedelta(days=30),
        actor=cast.ida.actor,
    )
    Token.objects.filter(pk=token.pk).update(created_at=frozen_clock.at)
    token.refresh_from_db()
    frozen_clock.advance(86400)
    successor, _ = actions.rotate_token(token, actor=cast.ida.actor, grace=timedelta(0))
    assert successor.expires_at == frozen_clock.at + timedelta(days=30)
    assert token.state == "expired"
    with pytest.raises(Invalid):
        actions.rotate_token(successor, actor=cast.ida.actor, grace=timedelta(days=8))


def test_a_maker_is_kept_while_tokens_exist(cast: Cast) -> None:
    from django.db.models import ProtectedError

    cast.token("infer", maker=cast.ada)
    with pytest.raises(ProtectedError):
        cast.ada.user.delete()


def test_a_demoted_maker_demotes_the_token(cast: Cast) -> None:
    bearer = cast.token("tenants:write", maker=cast.ida)
    body = {"weight": 2}
    assert bearer.api().patch("/api/v1/tenants/platform", body, format="json").status_code == 200
    Membership.objects.filter(user=cast.ida.user).update(role=Role.VIEWER)
    assert bearer.api().patch("/api/v1/tenants/platform", body, format="json").status_code == 403
