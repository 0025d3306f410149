"""Logins with a bound on attempts, as an authentication backend: every form and API that logs in is behind it."""

import hashlib
import logging
from datetime import timedelta
from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Min, Q
from django.http import HttpRequest

from console.kit import clock
from console.tenants.models import LoginAttempt

log = logging.getLogger(__name__)

WINDOW = timedelta(minutes=15)
# One person mistypes; one address may stand for an office; one name is attacked from many addresses.
MOST_PER_PERSON_AND_ADDRESS = 5
MOST_PER_ADDRESS = 30
MOST_PER_PERSON = 50


class ThrottledBackend(ModelBackend):
    """Django's own backend, asked only while attempts are left. With no request (shell, tests) it is not bounded."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> User | None:
        """Raises PermissionDenied when attempts are spent, which ends django.contrib.auth.authenticate with None."""
        if request is None or username is None or password is None:
            return super().authenticate(request, username, password, **kwargs)
        who, address = _who(username), _address(request)
        # Counted before the password is looked at: parallel guesses cannot all slip under the limit.
        attempt = LoginAttempt.objects.create(who=who, address=address, at=clock.now())
        if _over(who, address):
            attempt.delete()  # a refused attempt does not prolong the wait
            log.warning("login refused: too many attempts from %s", address)
            raise PermissionDenied("Too many attempts.")
        user = super().authenticate(request, username, password, **kwargs)
        if user is not None:
            LoginAttempt.objects.filter(who=who, address=address).delete()
        return user


def wait_seconds(request: HttpRequest, username: str) -> int:
    """How long until this person may try again from here; 0 when now. For the sentence on the login page."""
    who, address = _who(username), _address(request)
    if not _over(who, address, extra=1):
        return 0
    recent = LoginAttempt.objects.filter(at__gt=clock.now() - WINDOW).filter(Q(who=who) | Q(address=address))
    oldest = recent.aggregate(at=Min("at"))["at"]
    return max(1, int((oldest + WINDOW - clock.now()).total_seconds())) if oldest else 0


def forget_old() -> int:
    """Drop attempts that no longer count."""
    return LoginAttempt.objects.filter(at__lte=clock.now() - WINDOW).delete()[0]


def _over(who: str, address: str, *, extra: int = 0) -> bool:
    """extra: attempts about to be made that are not counted yet."""
    recent = LoginAttempt.objects.filter(at__gt=clock.now() - WINDOW).filter(Q(who=who) | Q(address=address))
    found: dict[str, int] = recent.aggregate(
        both=Count("pk", filter=Q(who=who, address=address)),
        address=Count("pk", filter=Q(address=address)),
        who=Count("pk", filter=Q(who=who)),
    )
    return (
        found["both"] + extra > MOST_PER_PERSON_AND_ADDRESS
        or found["address"] + extra > MOST_PER_ADDRESS
        or found["who"] + extra > MOST_PER_PERSON
    )


def _who(username: str) -> str:
    return hashlib.sha256(username.strip().casefold().encode()).hexdigest()


def _address(request: HttpRequest) -> str:
    """The peer; behind a proxy, uvicorn's --forwarded-allow-ips puts the client's own address there."""
    return str(request.META.get("REMOTE_ADDR") or "unknown")[:45]
