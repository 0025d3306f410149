"""Logins: bounded attempts for each person and address, without a way to lock somebody else out for long."""

from django.contrib.auth import authenticate
from django.http import HttpRequest

from console.tenants import logins
from console.tenants.models import LoginAttempt
from tests.cast import PASSWORD, Cast
from tests.conftest import FrozenClock


def page(address: str = "192.0.2.1") -> HttpRequest:
    request = HttpRequest()
    request.META["REMOTE_ADDR"] = address
    return request


def attempt(name: str = "ada", password: str = "wrong", address: str = "192.0.2.1") -> bool:
    return authenticate(page(address), username=name, password=password) is not None


def test_after_five_wrong_passwords_even_the_right_one_waits(cast: Cast, frozen_clock: FrozenClock) -> None:
    assert not any(attempt() for _ in range(5))
    assert not attempt(password=PASSWORD)
    assert logins.wait_seconds(page(), "ada") == 900
    frozen_clock.advance(899)
    assert not attempt(password=PASSWORD)  # refused attempts do not prolong the wait
    frozen_clock.advance(1)
    assert logins.wait_seconds(page(), "ada") == 0
    assert attempt(password=PASSWORD)


def test_others_and_other_addresses_are_not_locked_out(cast: Cast, frozen_clock: FrozenClock) -> None:
    for _ in range(5):
        attempt()
    assert attempt("ben", PASSWORD)
    assert attempt("ada", PASSWORD, "192.0.2.2")


def test_a_success_starts_the_count_anew(cast: Cast, frozen_clock: FrozenClock) -> None:
    for _ in range(4):
        attempt()
    assert attempt(password=PASSWORD)
    assert not LoginAttempt.objects.exists()
    assert not any(attempt() for _ in range(4))
    assert attempt(password=PASSWORD)


def test_the_name_is_counted_however_it_is_written(cast: Cast, frozen_clock: FrozenClock) -> None:
    for name in ("ada", "ADA", " Ada", "aDa", "adA "):
        attempt(name)
    assert logins.wait_seconds(page(), "ada") > 0


def test_one_address_cannot_try_many_names(cast: Cast, frozen_clock: FrozenClock) -> None:
    LoginAttempt.objects.bulk_create(
        LoginAttempt(who=logins._who(f"name-{n}"), address="192.0.2.1", at=frozen_clock.at)
        for n in range(logins.MOST_PER_ADDRESS)
    )
    assert not attempt("ben", PASSWORD)
    assert attempt("ben", PASSWORD, "192.0.2.2")


def test_one_name_cannot_be_tried_from_many_addresses(cast: Cast, frozen_clock: FrozenClock) -> None:
    from datetime import timedelta

    now = frozen_clock.at - timedelta(seconds=1)
    LoginAttempt.objects.bulk_create(
        LoginAttempt(who=logins._who("ada"), address=f"192.0.2.{n}", at=now)
        for n in range(logins.MOST_PER_PERSON)
    )
    assert not attempt("ada", PASSWORD, "198.51.100.1")


def test_a_password_typed_as_a_name_is_not_kept(cast: Cast, frozen_clock: FrozenClock) -> None:
    attempt("hunter2-is-my-password")
    assert "hunter2" not in str(list(LoginAttempt.objects.values()))
    frozen_clock.advance(900)
    assert logins.forget_old() == 1


def test_passwords_are_kept_as_djangos_slow_hash(cast: Cast) -> None:
    assert cast.ada.user.password.startswith("pbkdf2_sha256$")
