"""REST of rollouts; the paths of strategies are mounted here too."""

from typing import Any

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from console.kit import clock
from console.kit.errors import Invalid, NotFound
from console.kit.etags import expected_revision, tagged
from console.kit.parameters import DRY_RUN, IF_MATCH, KEY
from console.kit.rest import body_of, one, wants_dry_run
from console.services.models import Service
from console.tenants.idempotency import idempotent
from console.tenants.permissions import actor_of
from inference.models import Version
from rollouts import actions, judge_view, previews, waiting
from rollouts.models import Rollout
from rollouts.present import detail, outcome_of, summary
from rollouts.serializers import EvidenceOut, ReasonBody, RolloutBody, RolloutDetailOut, RolloutOut, WaitOut
from rollouts.states import State
from rollouts.strategy_api import (
    StrategyDetail,
    StrategyExport,
    StrategyImport,
    StrategyList,
    StrategyReplay,
)


def visible(request: Request) -> QuerySet[Rollout]:
    return Rollout.objects.for_actor(actor_of(request)).with_names()


class RolloutList(ListAPIView[Rollout]):
    """Rollouts of the services that the caller may see, newest first."""

    serializer_class = RolloutOut
    queryset = Rollout.objects.none()

    def get_queryset(self) -> QuerySet[Rollout]:
        rows = visible(self.request)
        if service := self.request.query_params.get("service"):
            rows = rows.filter(service__name=service)
        if state := self.request.query_params.get("state"):
            if state not in State.values:
                raise Invalid(
                    "A parameter is not valid.", fields={"state": f"one of {', '.join(State.values)}"}
                )
            rows = rows.filter(state=state)
        return rows

    @extend_schema(
        parameters=[OpenApiParameter("service", str), OpenApiParameter("state", str, enum=State.values)]
    )
    def get(self, request: Request) -> Response:
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response([summary(rollout) for rollout in page or ()])

    @extend_schema(request=RolloutBody, responses={201: RolloutOut}, parameters=[KEY, DRY_RUN])
    @idempotent()
    def post(self, request: Request) -> Response:
        """Start a rollout; with `dry_run` the plan as it would run."""
        actor, body = actor_of(request), body_of(request, RolloutBody)
        service = one(Service.objects.for_actor(actor).select_related("tenant"), name=body["service"])
        version = Version.objects.of(service).filter(number=body["version"]).first()
        if version is None:
            raise Invalid(
                "The rollout cannot start.", fields={"version": f"{service} has no version {body['version']}"}
            )
        wanted = actions.Wanted(service, version, body["strategy"], body["on_new_version"])
        if wants_dry_run(request):
            return Response(previews.of_start(actions.draft(wanted, actor=actor)))
        rollout = actions.start(wanted, actor=actor, reason=body["reason"])
        response = Response(summary(rollout), status=201, headers={"Location": summary(rollout)["url"]})
        return tagged(response, rollout.revision)


class RolloutView(GenericAPIView[Rollout]):
    serializer_class: type[RolloutOut] = RolloutDetailOut
    queryset = Rollout.objects.none()

    def rollout(self, pk: int) -> Rollout:
        return one(visible(self.request), pk=pk)


class RolloutDetail(RolloutView):
    """One rollout with its steps, measurements and decisions."""

    def get(self, request: Request, pk: int) -> Response:
        rollout = self.rollout(pk)
        return tagged(Response(detail(rollout, now=clock.now())), rollout.revision)


class RolloutVerb(RolloutView):
    """A verb on a rollout: pause, resume, skip, promote, abort, retry."""

    serializer_class = RolloutOut
    verb = ""

    @extend_schema(request=ReasonBody, responses={200: RolloutOut}, parameters=[KEY, DRY_RUN, IF_MATCH])
    @idempotent()
    def post(self, request: Request, pk: int) -> Response:
        rollout, actor = self.rollout(pk), actor_of(request)
        if wants_dry_run(request):
            return Response(previews.of_verb(rollout, self.verb, actor=actor))
        act = actions.VERBS[self.verb]
        reason = body_of(request, ReasonBody)["reason"]
        changed = act(rollout, actor=actor, reason=reason, revision=expected_revision(request))
        status = 201 if self.verb == "retry" else 200
        return tagged(Response(summary(changed), status=status), changed.revision)


class RolloutEvidence(RolloutView):
    """How far a proof of the judge is, in percent of what it needs: `points` of [seconds since the epoch, percent]."""

    serializer_class = EvidenceOut  # type: ignore[assignment]  # a series, not a rollout

    @extend_schema(
        parameters=[
            OpenApiParameter("gate", str, required=True),
            OpenApiParameter("metric", str, enum=["error_ratio", "slow_share"]),
            OpenApiParameter("proof", str, enum=list(judge_view.PROOFS)),
        ]
    )
    def get(self, request: Request, pk: int) -> Response:
        rollout, asked = self.rollout(pk), request.query_params
        proof = asked.get("proof", "worse")
        if proof not in judge_view.PROOFS:
            raise Invalid(
                "A parameter is not valid.", fields={"proof": f"one of {', '.join(judge_view.PROOFS)}"}
            )
        gate, metric = asked.get("gate", ""), asked.get("metric", "error_ratio")
        points = judge_view.points_of(rollout, gate, metric, proof)
        return Response({"unit": "%", "points": points})


class RolloutWait(RolloutView):
    """Long poll: answers when the rollout has ended or needs a person, at the latest after `timeout` seconds."""

    serializer_class = WaitOut

    @extend_schema(
        parameters=[OpenApiParameter("timeout", float, description="seconds, at most 120; default 60")]
    )
    def get(self, request: Request, pk: int) -> Response:
        seconds = _timeout(request)
        self.rollout(pk)
        try:
            rollout, timed_out = waiting.wait(visible(request), pk, seconds=seconds)
        except Rollout.DoesNotExist:
            raise NotFound("The rollout was removed meanwhile.") from None
        body = detail(rollout, now=clock.now())
        return Response({**body, "outcome": outcome_of(rollout), "timed_out": timed_out})


def _timeout(request: Request) -> float:
    raw = request.query_params.get("timeout", "60")
    try:
        seconds = float(raw)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= waiting.LONGEST_WAIT_SECONDS:
        most = waiting.LONGEST_WAIT_SECONDS
        raise Invalid("A parameter is not valid.", fields={"timeout": f"seconds from 0 to {most:g}"})
    return seconds


class _AnyAccept(BaseContentNegotiation):
    """EventSource asks for text/event-stream, curl for anything, a refusal is JSON all the same."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class RolloutEvents(RolloutView):
    """Server-sent events: `rollout` when the row changed, `decision` for each new one, `end` when it is over.

    `Last-Event-ID` goes on after that decision.
    """

    content_negotiation_class = _AnyAccept
    renderer_classes = [JSONRenderer]

    @extend_schema(responses={(200, "text/event-stream"): OpenApiTypes.STR})
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        self.rollout(pk)
        last = request.headers.get("Last-Event-ID", "")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else 0
        response = StreamingHttpResponse(
            waiting.events(visible(request), pk, after=after), content_type="text/event-stream"
        )
        response["Cache-Control"] = "no-store"
        response["X-Accel-Buffering"] = "no"
        return response


urlpatterns = [
    path("rollouts", RolloutList.as_view(), name="rollouts"),
    path("rollouts/<int:pk>", RolloutDetail.as_view(), name="rollout"),
    path("rollouts/<int:pk>/wait", RolloutWait.as_view(), name="rollout-wait"),
    path("rollouts/<int:pk>/evidence", RolloutEvidence.as_view(), name="rollout-evidence"),
    path("rollouts/<int:pk>/events", RolloutEvents.as_view(), name="rollout-events"),
    *(
        path(f"rollouts/<int:pk>/{verb}", RolloutVerb.as_view(verb=verb), name=f"rollout-{verb}")
        for verb in actions.VERBS
    ),
    path("strategies", StrategyList.as_view(), name="strategies"),
    path("strategies/import", StrategyImport.as_view(), name="strategy-import"),
    path("strategies/<int:pk>", StrategyDetail.as_view(), name="strategy"),
    path("strategies/<int:pk>/export", StrategyExport.as_view(), name="strategy-export"),
    path("strategies/<int:pk>/replay", StrategyReplay.as_view(), name="strategy-replay"),
]
