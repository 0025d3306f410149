"""`Idempotency-Key`: a POST that is sent twice acts once, and both senders get the same answer.

The key is claimed in a transaction of its own. The action and its stored answer then commit together, so a process that
dies in between leaves either both or a claim that the next try takes over. Refusals change nothing and free the key.
"""

import functools
import hashlib
import json
import re
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

import orjson
from django.core.files.uploadedfile import UploadedFile
from django.db import IntegrityError, transaction
from django.http import QueryDict
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from console.kit import clock, crypto
from console.kit.errors import Conflict, Invalid
from console.kit.rest import wants_dry_run
from console.tenants.models import IdempotencyRecord
from console.tenants.permissions import Actor, actor_of

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEPT = timedelta(hours=24)
TAKEN_OVER_AFTER = timedelta(seconds=60)

_PURPOSE = "idempotency"
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_KEPT_HEADERS = ("Location", "ETag")

P = ParamSpec("P")
V = TypeVar("V")
Method = Callable[Concatenate[V, Request, P], Response]


class InProgress(Conflict):
    """The first request with this key is still being answered."""

    code = "in_progress"
    retry_after_seconds = 1.0


class KeyReused(Conflict):
    """The key stood for another request."""

    code = "key_reused"


@dataclass(frozen=True, slots=True)
class Claim:
    record_id: uuid.UUID
    claim: uuid.UUID


def idempotent(*, atomic: bool = True) -> Callable[[Method[V, P]], Method[V, P]]:
    """Decorate a DRF `post`. atomic False: for methods that work long and must not hold a transaction open meanwhile;
    then a process killed between action and answer lets a repeat act again.
    """

    def decorate(method: Method[V, P]) -> Method[V, P]:
        @functools.wraps(method)
        def answer(view: V, request: Request, /, *args: P.args, **kwargs: P.kwargs) -> Response:
            key = request.headers.get(HEADER)
            if key is None or wants_dry_run(request):
                return method(view, request, *args, **kwargs)
            if not _KEY.fullmatch(key):
                raise Invalid("The key is not valid.", fields={HEADER: "1 to 255 visible ASCII characters"})
            found = _claim(_owner(actor_of(request)), key, _fingerprint(request))
            if isinstance(found, IdempotencyRecord):
                return _replay(found)
            try:
                with transaction.atomic() if atomic else nullcontext():
                    response = method(view, request, *args, **kwargs)
                    if response.status_code < 300:
                        _keep(found, response)
            except BaseException:
                _free(found)
                raise
            if response.status_code >= 300:
                _free(found)
            return response

        return answer

    return decorate


def forget_old() -> int:
    """Drop what is older than KEPT."""
    return IdempotencyRecord.objects.filter(created_at__lte=clock.now() - KEPT).delete()[0]


def _claim(owner: str, key: str, fingerprint: str) -> Claim | IdempotencyRecord:
    """A fresh claim, or the finished record to replay. Raises InProgress, KeyReused."""
    now, mine = clock.now(), uuid.uuid4()
    try:
        with transaction.atomic():
            made = IdempotencyRecord.objects.create(
                owner=owner, key=key, request_sha256=fingerprint, claim=mine, claimed_at=now, created_at=now
            )
        return Claim(made.pk, mine)
    except IntegrityError:
        pass
    found = IdempotencyRecord.objects.filter(owner=owner, key=key).first()
    if found is None:  # freed between our two looks
        raise InProgress("Another request with this key has just ended; send it again.")
    if found.created_at <= now - KEPT:
        IdempotencyRecord.objects.filter(pk=found.pk, claim=found.claim).delete()
        return _claim(owner, key, fingerprint)
    if found.request_sha256 != fingerprint:
        raise KeyReused(
            f"This {HEADER} was used for another request.",
            fields={HEADER: "use a new key for a new request"},
        )
    if found.status is not None:
        return found
    return _take_over(found, mine)


def _take_over(found: IdempotencyRecord, mine: uuid.UUID) -> Claim:
    """Whoever answered first has died when it has been silent for long; conditional, so only one successor wins."""
    now = clock.now()
    silent = found.claimed_at <= now - TAKEN_OVER_AFTER
    same = IdempotencyRecord.objects.filter(pk=found.pk, claim=found.claim, status__isnull=True)
    if not silent or not same.update(claim=mine, claimed_at=now):
        raise InProgress("The first request with this key is still being answered.")
    return Claim(found.pk, mine)


def _keep(claim: Claim, response: Response) -> None:
    """Store the answer sealed: that of `token create` holds a secret."""
    headers = {name: response[name] for name in _KEPT_HEADERS if name in response}
    plain = orjson.dumps({"body": response.data, "headers": headers}, default=JSONEncoder().default)
    kept = IdempotencyRecord.objects.filter(pk=claim.record_id, claim=claim.claim).update(
        status=response.status_code, answer=crypto.seal(_PURPOSE, plain)
    )
    if not kept:
        raise InProgress("This request took too long; another one with the same key took over.")


def _free(claim: Claim) -> None:
    IdempotencyRecord.objects.filter(pk=claim.record_id, claim=claim.claim).delete()


def _replay(record: IdempotencyRecord) -> Response:
    try:
        answer = orjson.loads(crypto.unseal(_PURPOSE, record.answer))
    except crypto.SealBroken:
        raise Conflict(
            "The request was carried out, but its answer can no longer be read: SECRET_KEY has changed.",
            code="answer_lost",
        ) from None
    headers = {**answer["headers"], REPLAYED: "true"}
    return Response(answer["body"], status=record.status, headers=headers)


def _owner(actor: Actor) -> str:
    """Keys of different callers never meet."""
    return f"token:{actor.token_id}" if actor.token_id is not None else f"user:{actor.user_id}"


def _fingerprint(request: Request) -> str:
    """Method, address and body. Of an upload the fields and files, since its boundary differs in each try."""
    whole = hashlib.sha256(f"{request.method} {request.get_full_path()}\n".encode())
    data = request.data
    if isinstance(data, QueryDict):
        for name in sorted(data):
            for value in data.getlist(name):
                whole.update(orjson.dumps([name, _content(value)]))
    else:
        # Not orjson: a body may hold integers of any size, deep nesting and half characters, which fields refuse later.
        whole.update(json.dumps(data, sort_keys=True).encode())
    return whole.hexdigest()


def _content(value: Any) -> str:
    if not isinstance(value, UploadedFile):
        return str(value)
    digest = hashlib.sha256()
    for chunk in value.chunks():
        digest.update(chunk)
    value.seek(0)
    return f"{value.name} {digest.hexdigest()}"
