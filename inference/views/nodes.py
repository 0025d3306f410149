"""`/nodes`: where inference happens, as the nodes last said."""

from collections import defaultdict
from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from console.services.models import Service
from console.tenants.models import Tenant
from console.tenants.permissions import Actor, actor_of, may, require
from console.ui.access import found, page
from console.ui.listing import Filters, Listing, listed
from console.ui.render import page_or_part
from inference import snapshot
from inference.models import Node, Replica
from inference.states import Face
from inference.views.service import ReplicaLine, replica_line


@dataclass(frozen=True, slots=True)
class NodeLine:
    """behind: snapshots that it does not serve yet; None when it follows another database's."""

    node: Node
    face: Face
    ready: int
    total: int
    behind: int | None


@page()
def nodes(request: HttpRequest) -> HttpResponse:
    require(actor_of(request), "node.view", None)
    listing: Listing[Node] = listed(request, Node.objects.order_by("name"), Filters({}, request.GET))
    context = {"listing": listing, "lines": node_lines(listing.rows)}
    return page_or_part(request, "nodes/nodes.html", context, parts={"rows"})


@page()
def node(request: HttpRequest, name: str) -> HttpResponse:
    actor = actor_of(request)
    require(actor, "node.view", None)
    row = found(Node.objects.all(), name=name)
    context = {
        "line": node_lines([row])[0],
        "node": row,
        "number": snapshot.current_number()[1],
        "replicas": visible_replicas(actor, row),
        "hidden": Replica.objects.filter(node=row)
        .exclude(service__in=Service.objects.for_actor(actor))
        .count(),
        "may_restart": any(may(actor, "replica.restart", one) for one in _tenants_of(row)),
    }
    return page_or_part(request, "nodes/node.html", context, parts={"live"})


def node_lines(nodes: list[Node]) -> list[NodeLine]:
    epoch, number = snapshot.current_number()
    states: dict[int, list[str]] = defaultdict(list)
    for node_id, state in Replica.objects.filter(node__in=nodes).values_list("node_id", "state"):
        states[node_id].append(state)
    return [
        NodeLine(
            node,
            node.face,
            ready=sum(state == "ready" for state in states[node.pk]),
            total=len(states[node.pk]),
            behind=max(0, number - node.snapshot_number) if node.snapshot_epoch in (epoch, "") else None,
        )
        for node in nodes
    ]


def visible_replicas(actor: Actor, node: Node) -> list[ReplicaLine]:
    rows = (
        Replica.objects.for_actor(actor)
        .filter(node=node)
        .select_related("node", "service", "version__service")
    )
    return [replica_line(one) for one in rows.order_by("service__name", "-version__number", "ordinal")]


def _tenants_of(node: Node) -> QuerySet[Tenant]:
    return Tenant.objects.filter(services__replicas__node=node).distinct()
