"""The verbs on load tests: start, upload, cancel, and what the agent that runs one reports."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from celery import current_app
from django.db import IntegrityError, transaction
from django.db.models import F
from kombu.exceptions import OperationalError

from console.audit import log as audit
from console.kit import clock
from console.kit.errors import Conflict, Invalid, OperationError
from console.kit.etags import check_revision
from console.kit.events import changed, publish
from console.loadtests import files, reports
from console.loadtests.models import LoadTest, Source
from console.loadtests.plan import Plan, Threshold, checked, thresholds_of
from console.loadtests.states import FACES, State, Verdict
from console.services.models import Service
from console.tenants.models import Quota, Tenant, Token
from console.tenants.permissions import Actor, process, require
from console.tenants.token_actions import create_token

# How long a key outlives its test: until then the agent has said how it ended.
_KEY_GRACE = timedelta(seconds=120)
# A run whose agent says nothing for this long is gone with it.
SILENT = timedelta(seconds=15)
# No agent took it: none is running, or all are busy with others.
NOT_TAKEN = timedelta(minutes=10)
ASK_AGAIN = timedelta(seconds=10)
_NOT_READ = "The CSV cannot be read."


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run as asked for. tenant: on whose behalf, its quota counts."""

    service: Service
    tenant: Tenant
    plan: Plan
    thresholds: tuple[str, ...] = ()
    version: int | None = None
    title: str = ""


def wanted(
    service: Service,
    tenant: Tenant,
    *,
    actor: Actor,
    plan: dict[str, Any],
    thresholds: Iterable[str] = (),
    version: int | None = None,
    title: str = "",
) -> Wanted:
    """Check everything that `start` checks and change nothing; also the preview of a start."""
    require(actor, "loadtest.start", tenant, visible=True)
    if (
        service.tenant_id != tenant.pk
        and not Quota.objects.filter(tenant=tenant, service=service.name).exists()
    ):
        raise Invalid("The load test cannot start.", fields={"tenant": f"{tenant} may not call {service}"})
    texts = tuple(text.strip() for text in thresholds if text.strip())
    thresholds_of(list(texts))
    _check_free(service)
    return Wanted(service, tenant, checked(plan), texts, version, title.strip())


def _check_free(service: Service) -> None:
    other = LoadTest.objects.unfinished().filter(service=service.name).values_list("pk", flat=True).first()
    if other is not None:
        raise Conflict(
            f"Load test {other} of {service} is not over; two at once would measure each other.",
            fields={"service": f"load test {other} is under way"},
        )


@transaction.atomic
def start(asked: Wanted, *, actor: Actor, reason: str = "") -> LoadTest:
    """Write what is wanted; an agent takes it. Raises Conflict while another test of the service runs."""
    require(actor, "loadtest.start", asked.tenant, visible=True)
    try:
        with transaction.atomic():
            made = LoadTest.objects.create(
                tenant=asked.tenant,
                service=asked.service.name,
                version=asked.version,
                title=asked.title,
                settings=asked.plan.as_json(),
                thresholds=list(asked.thresholds),
                message="Waits for an agent to take it.",
                created_by=actor.name,
                created_at=clock.now(),
            )
    except IntegrityError:  # another one was faster between check and write
        _check_free(asked.service)
        raise
    after = {"service": made.service, "version": made.version, **asked.plan.as_json()}
    _tell(made, actor, "loadtest.start", reason=reason, after=after)
    transaction.on_commit(lambda: ask_agents(made.pk), robust=True)
    return made


def upload(
    service: Service,
    tenant: Tenant,
    chunks: Iterable[bytes],
    *,
    actor: Actor,
    columns: dict[str, str] | None = None,
    thresholds: Iterable[str] = (),
    title: str = "",
    reason: str = "",
) -> LoadTest:
    """Read somebody's CSV as one of ours. columns: ours -> theirs, such as {"duration": "latency"}.

    Not in one transaction: reading a long file would hold the only writer of SQLite for its whole time.
    """
    require(actor, "loadtest.start", tenant, visible=True)
    texts = [text.strip() for text in thresholds if text.strip()]
    limits = thresholds_of(texts)
    path = files.receive(chunks)
    if path is None:
        raise Invalid(_NOT_READ, fields={"file": f"is longer than {files.MOST_BYTES >> 20} MiB"})
    try:
        report = reports.of_csv(path, columns=columns or {})
        with transaction.atomic():
            now = clock.now()
            made = LoadTest(
                tenant=tenant,
                service=service.name,
                source=Source.UPLOAD,
                title=title.strip(),
                settings={"columns": columns or {}},
                thresholds=texts,
                state=State.FINISHED,
                message=f"Read {report['requests']:,} rows of an uploaded CSV.",
                created_by=actor.name,
                created_at=now,
                finished_at=now,
                csv_bytes=path.stat().st_size,
            )
            _take_report(made, report, limits)
            made.save()
            after = {"service": made.service, "rows": made.requests, "verdict": made.verdict}
            _tell(made, actor, "loadtest.upload", reason=reason, after=after)
            path.replace(files.csv_of(made.pk))
    finally:
        path.unlink(missing_ok=True)
    files.keep(made.pk)
    return made


@transaction.atomic
def cancel(loadtest: LoadTest, *, actor: Actor, reason: str = "", revision: int | None = None) -> LoadTest:
    """A queued one is over at once; the process of a running one is ended by its agent, which then says so."""
    require(actor, "loadtest.cancel", loadtest.tenant, visible=True)
    row = LoadTest.objects.select_for_update().select_related("tenant").get(pk=loadtest.pk)
    check_revision(row, revision)
    if "cancel" not in FACES[State(row.state)].verbs:
        raise Conflict(f"Load test {row.pk} is {row.state}; there is nothing to stop.")
    if row.stop_asked_at is not None:
        return row
    before, now = row.state, clock.now()
    changes: dict[str, Any] = {"stop_asked_at": now}
    if row.state == State.QUEUED:
        changes |= {"state": State.CANCELLED, "finished_at": now, "message": "Cancelled before it began."}
    else:
        changes["message"] = "Stopping: the agent ends the load tool."
    LoadTest.objects.filter(pk=row.pk).update(**changes, revision=F("revision") + 1)
    row.refresh_from_db()
    _tell(
        row, actor, "loadtest.cancel", reason=reason, before={"state": before}, after={"state": row.face.word}
    )
    return row


def ask_agents(loadtest_id: int) -> None:
    """Put it on the queue `jobs`. A lost message only delays: `sweep` asks again."""
    try:
        current_app.send_task(
            "console.loadtests.tasks.run",
            args=[loadtest_id],
            queue="jobs",
            expires=ASK_AGAIN.total_seconds(),
        )
    except (OperationalError, OSError):
        return


# What the agent that runs it writes. Each is conditional on the state, so a late word changes nothing.


def claim(loadtest_id: int, *, node: str) -> LoadTest | None:
    """The row, now running on `node`; None when it is not queued any more."""
    now = clock.now()
    rows = LoadTest.objects.filter(pk=loadtest_id, state=State.QUEUED)
    with transaction.atomic():
        taken = rows.update(
            state=State.RUNNING,
            node=node,
            beat_at=now,
            message="The key travels to the planes.",
            revision=F("revision") + 1,
        )
        if not taken:
            return None
        row = LoadTest.objects.select_related("tenant").get(pk=loadtest_id)
        for topic in row.topics:
            publish(topic, row.revision)
    return row


@transaction.atomic
def make_key(row: LoadTest) -> str:
    """A secret of the tenant for this run alone, which ends by itself soon after it."""
    token, secret = create_token(
        row.tenant,
        name=f"load test {row.pk}",
        scopes=["infer"],
        actor=process(row.target),
        expires_at=clock.now() + timedelta(seconds=row.seconds) + _KEY_GRACE,
        reason=f"load test of {row.service}",
    )
    LoadTest.objects.filter(pk=row.pk).update(token_id=token.pk)
    row.token_id = token.pk
    return secret


def note(row: LoadTest, **changes: Any) -> bool:
    """A running test's progress. True: go on; False: it is to stop, or is over already."""
    rows = LoadTest.objects.filter(pk=row.pk, state=State.RUNNING)
    alive = rows.update(**changes, beat_at=clock.now(), revision=F("revision") + 1)
    if not alive:
        return False
    row.refresh_from_db(fields=["stop_asked_at", "revision"])
    for topic in row.topics[:1]:
        publish(topic, row.revision)
    return row.stop_asked_at is None


@transaction.atomic
def end(
    row: LoadTest, state: State, message: str, *, report: dict[str, Any] | None = None, csv_bytes: int = 0
) -> bool:
    """How it ended; False when somebody else said so before."""
    current = LoadTest.objects.select_for_update().select_related("tenant").get(pk=row.pk)
    if not current.may_become(state):
        return False
    before = current.state
    if report is not None:
        _take_report(current, report, thresholds_of(current.thresholds))
    current.state, current.message = state, message[:500]
    current.csv_bytes, current.finished_at = csv_bytes, clock.now()
    current.revision += 1
    current.save()
    _revoke(current)
    after = {"state": state, "requests": current.requests, "verdict": current.verdict}
    _tell(
        current,
        process(current.target),
        "loadtest.end",
        reason=message,
        before={"state": before},
        after=after,
    )
    return True


def _take_report(row: LoadTest, report: dict[str, Any], limits: list[Threshold]) -> None:
    row.report = report
    row.requests, row.errors = report["requests"], report["errors"]
    row.qps, row.p99_ms = report["qps"], report["latency_ms"].get("p99")
    lines = reports.judge(report, limits)
    missed = any(not line.is_met for line in lines)
    row.verdict = Verdict.NONE if not lines else Verdict.MISSED if missed else Verdict.MET


def _revoke(row: LoadTest) -> None:
    if row.token_id is None:
        return
    if Token.objects.filter(pk=row.token_id, revoked_at__isnull=True).update(revoked_at=clock.now()):
        changed("identity")


def sweep(now: datetime | None = None) -> int:
    """Bring rows back to the truth: ask for queued ones again, and end those whose agent is gone."""
    now = now or clock.now()
    ended = 0
    for row in LoadTest.objects.unfinished().select_related("tenant"):
        if row.state == State.QUEUED:
            if now - row.created_at > NOT_TAKEN:
                ended += end(row, State.FAILED, "No agent took it for 10 minutes. Is a node running?")
            elif now - row.created_at > ASK_AGAIN:
                ask_agents(row.pk)
        elif row.beat_at is None or now - row.beat_at > SILENT:
            ended += _end_silent(row)
    return ended


def _end_silent(row: LoadTest) -> bool:
    since = f"{row.beat_at:%H:%M:%S} UTC" if row.beat_at else "its start"
    if row.stop_asked_at is not None:
        return end(row, State.CANCELLED, f"Stopped; the agent of {row.node} says nothing since {since}.")
    words = (
        f"The agent of {row.node} that ran it is gone: no sign since {since}. It was not measured to its end."
    )
    return end(row, State.FAILED, words)


def _tell(
    row: LoadTest, actor: Actor, verb: str, *, reason: str, before: Any = None, after: Any = None
) -> None:
    audit.record(
        actor,
        verb,
        row.target,
        tenant=row.tenant.slug,
        reason=reason,
        before=before,
        after=after,
        topics=[*row.topics, f"service:{row.service}"],
    )


def tenant_for(service: Service, actor: Actor, slug: str = "") -> Tenant:
    """On whose behalf: the named tenant, else the owner, else the one of the actor's that may call the service."""
    if slug:
        named = Tenant.objects.filter(slug=slug).first()
        if named is None or actor.role_in(named) is None:
            raise Invalid(
                "The load test cannot start.", fields={"tenant": "there is no such tenant of yours"}
            )
        return named
    if actor.role_in(service.tenant_id) is not None:
        return service.tenant
    granted = Quota.objects.filter(service=service.name, tenant__in=list(actor.roles)).select_related(
        "tenant"
    )
    first = granted.order_by("tenant__slug").first()
    if first is None:
        raise OperationError("None of your tenants may call this service.")
    return first.tenant
