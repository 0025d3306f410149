"""Services, versions, replicas and nodes as pages: permission, the three kinds of empty, stale, and their verbs."""

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from console.audit import log
from console.audit.models import Entry
from console.services.models import Service
from inference.models import Version
from tests import factories
from tests.cast import Cast
from tests.ui import scene

pytestmark = pytest.mark.django_db


def test_services_are_sorted_by_health_and_name(cast: Cast) -> None:
    for name, state in (("b-well", "ready"), ("c-ill", "crashed"), ("a-well", "ready")):
        factories.replica(factories.stable(1, of=name), state=state)
    lines = cast.ben.pages().get("/services").context["lines"]
    assert [(line.service.name, line.condition.face.word) for line in lines] == [
        ("c-ill", "not serving"),
        ("a-well", "serving"),
        ("b-well", "serving"),
    ]


def test_no_services_is_told_apart_from_none_that_match(cast: Cast) -> None:
    ben = cast.ben.pages()
    assert "No services yet." in ben.get("/services").content.decode()
    factories.stable(1)
    page = ben.get("/services?q=nothing&state=ill").content.decode()
    assert "No service matches" in page
    assert "q:nothing state:ill" in page


def test_the_list_takes_the_same_queries_for_many_services(
    cast: Cast, django_assert_max_num_queries: Any
) -> None:
    for number in range(30):
        factories.replica(factories.stable(1, of=f"service-{number:02}"))
    ben = cast.ben.pages()
    with django_assert_max_num_queries(25):
        page = ben.get("/services")
    assert "1 to 25 of 30 services" in page.content.decode()


def test_a_client_of_a_service_sees_it_without_verbs(cast: Cast) -> None:
    factories.version(2, of=factories.stable(1).service)
    replica = factories.replica(Version.objects.get(number=1), pid=99)
    factories.quota("strange")
    cleo = cast.cleo.pages()
    page = cleo.get("/services/file-type").content.decode()
    assert "Start rollout" not in page
    assert "Register a version" not in page
    assert f"/replicas/{replica.pk}/restart" not in page
    assert cleo.get(f"/replicas/{replica.pk}/restart").status_code in (302, 403)
    assert cleo.get("/services/file-type/versions/new").status_code == 403


def test_the_headline_says_what_is_served(cast: Cast) -> None:
    stable = factories.stable(1)
    canary = factories.version(2, of=stable.service)
    factories.placement(canary, role="canary", weight=18)
    for of in (stable, canary):
        factories.replica(of)
    head = cast.ben.pages().get("/services/file-type?part=head").content.decode()
    assert "<b>18 %</b> on version <b>2</b>" in head


def test_replicas_of_a_silent_node_are_unknown_not_ready(cast: Cast) -> None:
    factories.replica(factories.stable(1), on=factories.node(silent_seconds=42), pid=7)
    page = cast.ada.pages().get("/services/file-type?part=replicas").content.decode()
    assert "no report for 30 s" in page
    assert "as of" in page
    assert "/restart" not in page
    assert 'data-role="ok"' not in page


def test_a_restart_is_previewed_by_the_server_and_recorded(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(
        "celery.app.base.Celery.send_task", lambda *args, **kwargs: sent.append((args, kwargs))
    )
    replica = factories.replica(factories.stable(1), pid=4242)
    ada = cast.ada.pages()
    preview = ada.get(f"/replicas/{replica.pk}/restart", headers={"HX-Request": "true"}).content.decode()
    assert "No other replica of the version is ready" in preview
    assert f"/api/v1/replicas/{replica.pk}/restart" in preview
    done = ada.post(f"/replicas/{replica.pk}/restart", {"reason": "it leaks"}, headers={"HX-Request": "true"})
    assert done.status_code == 204
    assert "service:file-type" in done["X-Pilothouse-Events"]
    assert Entry.objects.get(verb="replica.restart").reason == "it leaks"
    assert len(sent) == 1


def test_a_refused_registration_names_the_field_and_keeps_what_was_typed(cast: Cast) -> None:
    broken = SimpleUploadedFile("model.onnx", b"this is no graph")
    answer = cast.ada.pages().post(
        "/services/-/new", {"name": "new-one", "tenant": "platform", "models": broken, "note": "my first"}
    )
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "Nothing was saved yet." in page
    assert 'href="#id_models"' in page
    assert 'value="my first"' in page
    assert not Service.objects.exists()


def test_a_registration_without_a_graph_is_refused_before_anything_is_written(cast: Cast) -> None:
    factories.stable(1)
    notes = SimpleUploadedFile("notes.txt", b"hello")
    answer = cast.ada.pages().post("/services/file-type/versions/new", {"models": notes})
    assert "One of them must be an .onnx graph." in answer.content.decode()


def test_a_real_model_is_registered_from_the_browser(cast: Cast) -> None:
    answer = cast.ada.pages().post(
        "/services/-/new",
        {"name": "adder", "tenant": "platform", "models": SimpleUploadedFile("adder.onnx", a_graph())},
    )
    assert (answer.status_code, answer["Location"]) == (302, "/services/adder")
    version = Version.objects.get(service__name="adder")
    assert (version.number, version.created_by) == (1, "user:ada")
    page = cast.ben.pages().get("/services/adder/versions/1").content.decode()
    assert version.digest in page


def a_graph() -> bytes:
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "adder", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


def test_nodes_show_what_they_said_and_how_old_it_is(cast: Cast) -> None:
    factories.node("node-1")
    factories.node("node-2", silent_seconds=120)
    ben = cast.ben.pages()
    lines = ben.get("/nodes").context["lines"]
    assert [(line.node.name, line.face.role) for line in lines] == [("node-1", "ok"), ("node-2", "unknown")]
    assert "The node may be serving all the same." in ben.get("/nodes/node-2").content.decode()


def test_a_node_hides_the_replicas_of_other_tenants(cast: Cast) -> None:
    factories.replica(factories.stable(1))
    page = cast.cleo.pages().get("/nodes/node-1").content.decode()
    assert "file-type" not in page
    assert "1 of other tenants are not shown" in page


def test_no_node_yet_says_how_one_is_made(cast: Cast) -> None:
    assert "No node has reported yet." in cast.ben.pages().get("/nodes").content.decode()


def test_what_a_version_did_stays_in_the_charts_when_its_traffic_is_gone(cast: Cast) -> None:
    service = factories.stable(1).service
    ben = cast.ben.pages()

    def labels() -> list[str]:
        page = ben.get(f"/services/{service.name}")
        return [line["label"] for line in json.loads(page.context["chart_lines"])]

    assert labels() == ["version 1"]
    log.record("system", "placement.withdraw", f"service:{service.name}", after={"version": 2})
    assert labels() == ["all", "version 1"]


def test_the_service_page_shows_refusals_by_limit_and_how_it_batches(
    cast: Cast, redis_server: object
) -> None:
    scene.build()
    scene.samples(seconds=400)
    answer = cast.ben.pages().get("/services/file-type")
    batching = answer.context["batching"]
    assert [bar.label for bar in batching.sizes] == ["1", "3 to 4"]
    assert sum(bar.percent for bar in batching.sizes) == pytest.approx(100)
    assert [bar.label for bar in batching.reasons] == ["a worker was idle", "the batch was full"]
    assert (batching.queue.text, batching.inference.text, batching.queue_percent) == ("3.00", "9.00", 25)
    assert (batching.step.role, batching.step.word) == ("warn", "step 2 of 4, overloaded: smaller batches")
    lines = json.loads(answer.context["refused_lines"])
    assert [line["label"] for line in lines] == ["all limits", "rate", "queue"]
    page = answer.content.decode()
    assert "How many are refused?" in page
    assert "25 % of the two is waiting." in page


def test_a_service_without_batches_says_so(cast: Cast, redis_server: object) -> None:
    factories.stable(1)
    page = cast.ben.pages().get("/services/file-type?part=batching").content.decode()
    assert "No batch was run in the last 5 min." in page
