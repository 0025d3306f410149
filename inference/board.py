"""What services and nodes tell the overview, the rail and Jump."""

from django.db.models import Q
from django.urls import reverse

from console.kit import clock
from console.services.models import Service
from console.tenants.permissions import Actor, may
from console.ui import board
from console.ui.board import Entry, Health, Jump, Need, matches
from inference.condition import conditions
from inference.models import Node, Replica
from inference.states import SILENT_AFTER

# More services than this are counted on their own page, not one by one on the overview.
MOST_SERVICES = 500
_MOST_JUMPS = 8


def _services(reader: Actor) -> list[Service]:
    return list(Service.objects.for_actor(reader)[:MOST_SERVICES])


class ServicesSection(board.Section):
    entries = (Entry("services", "Services", "inference:services", "s", 20, on_phone=True),)

    def needs(self, reader: Actor) -> list[Need]:
        services = _services(reader)
        found = conditions(services)
        return [
            Need(
                section="services",
                role=one.face.role,
                word=one.face.word,
                subject=service.name,
                url=reverse("inference:service", args=[service.name]),
                since=one.since,
                why=one.why,
                action="See replicas",
                action_url=f"{reverse('inference:service', args=[service.name])}#replicas",
            )
            for service in services
            if (one := found[service.pk]).face.role in ("fail", "warn", "unknown")
        ]

    def health(self, reader: Actor) -> list[Health]:
        services = _services(reader)
        found = conditions(services)
        healthy = sum(one.face.role in ("ok", "busy") for one in found.values())
        ready, total = sum(one.ready for one in found.values()), sum(one.total for one in found.values())
        return [Health("service", healthy, len(services)), Health("replica", ready, total)]

    def services(self, reader: Actor) -> list[str]:
        return list(Service.objects.for_actor(reader).values_list("name", flat=True)[:MOST_SERVICES])

    def jumps(self, reader: Actor, text: str) -> list[Jump]:
        rows = Service.objects.for_actor(reader).select_related("tenant")
        for word in text.split():
            if not matches(word, "service", "start rollout", "try", "register version"):
                rows = rows.filter(name__icontains=word)
        found = []
        for service in rows[:_MOST_JUMPS]:
            address = reverse("inference:service", args=[service.name])
            found.append(Jump(service.name, "service", address))
            verbs = [("try", "service.try", reverse("inference:try", args=[service.name]))]
            verbs.append(
                (
                    "register version of",
                    "version.register",
                    reverse("inference:new_version", args=[service.name]),
                )
            )
            for verb, right, url in verbs:
                if text and matches(text, verb, service.name) and may(reader, right, service.tenant):
                    found.append(Jump(f"{verb} {service.name}", "verb", url))
        return [jump for jump in found if matches(text, jump.label, jump.kind)]


class NodesSection(board.Section):
    entries = (Entry("nodes", "Nodes", "inference:nodes", "n", 90),)

    def needs(self, reader: Actor) -> list[Need]:
        if not may(reader, "node.view", None):
            return []
        silent = Q(reported_at__lt=clock.now() - SILENT_AFTER) | Q(reported_at=None)
        ill = Node.objects.filter(silent | Q(plane_state="crashed"))
        return [
            Need(
                section="nodes",
                role=(face := node.face).role,
                word=face.word,
                subject=node.name,
                url=reverse("inference:node", args=[node.name]),
                since=node.reported_at,
                why="Its agent does not report. It may be down, or only cut off and serving on."
                if face.role == "unknown"
                else "Its plane crashed; the agent starts it again.",
                action="See the node",
                action_url=reverse("inference:node", args=[node.name]),
            )
            for node in ill
        ]

    def jumps(self, reader: Actor, text: str) -> list[Jump]:
        if not text or not may(reader, "node.view", None):
            return []
        nodes = Node.objects.all()[:100]
        return [
            Jump(node.name, "node", reverse("inference:node", args=[node.name]))
            for node in nodes
            if matches(text, node.name, "node")
        ][:_MOST_JUMPS]


def may_hear_service(actor: Actor, name: str) -> bool:
    return Service.objects.for_actor(actor).filter(name=name).exists()


def may_hear_node(actor: Actor, name: str) -> bool:
    return may(actor, "node.view", None) and Node.objects.filter(name=name).exists()


def replicas_of(reader: Actor, service: Service) -> list[Replica]:
    rows = Replica.objects.for_actor(reader).filter(service=service)
    return list(
        rows.select_related("node", "version__service").order_by("-version__number", "node__name", "ordinal")
    )
