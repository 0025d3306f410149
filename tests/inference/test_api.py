"""REST of services, models, versions, nodes and replicas: Ada can, Ben sees, Cleo gets 404."""

from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from console.services.models import Service
from inference.models import Version
from inference.registry import store
from tests import factories
from tests.cast import Cast
from tests.inference.conftest import write_model
from tests.services.redis import RedisServer

pytestmark = pytest.mark.django_db

API = "/api/v1"


@pytest.fixture
def service(cast: Cast) -> Service:
    return factories.stable(1).service


def model_bytes(tmp_path: Path, add: float = 1.0) -> bytes:
    path = tmp_path / f"m{add}.onnx"
    if not path.exists():
        write_model(path, add=add)
    return path.read_bytes()


def form(tmp_path: Path, **fields: Any) -> dict[str, Any]:
    return {"service": "adder", "model": SimpleUploadedFile("m.onnx", model_bytes(tmp_path)), **fields}


def register(client: APIClient, data: dict[str, Any], **headers: str) -> Any:
    return client.post(f"{API}/versions", data, format="multipart", headers=headers)


def test_ada_registers_by_upload(cast: Cast, tmp_path: Path) -> None:
    answer = register(cast.ada.api(), form(tmp_path, note="first"))
    assert answer.status_code == 201, answer.content
    assert answer["Location"] == "/api/v1/versions/adder/1"
    body = answer.json()
    assert (body["number"], body["aliases"], body["note"]) == (1, ["stable"], "first")
    assert body["signature"]["inputs"][0]["name"] == "x"
    assert cast.ben.api().get(answer["Location"]).status_code == 200


def test_extra_files_and_contract_travel_along(cast: Cast, tmp_path: Path) -> None:
    contract = b"""
apiVersion: pilothouse.dev/v1
kind: ModelContract
metadata: {name: adder}
spec:
  inputs: [{name: x, datatype: FP32, shape: [-1, 4]}]
  outputs: [{name: y, datatype: FP32, shape: [-1, 4], labels: labels.txt}]
"""
    data = form(
        tmp_path,
        contract=SimpleUploadedFile("c.yaml", contract),
        files=[SimpleUploadedFile("labels.txt", b"a\nb\nc\nd\n")],
    )
    body = register(cast.ada.api(), data).json()
    assert [file["path"] for file in body["files"]] == ["labels.txt", "model.onnx"]
    assert body["contract"]["spec"]["outputs"][0]["labels"] == "labels.txt"


def test_the_same_key_registers_once(cast: Cast, tmp_path: Path) -> None:
    client = cast.token("models:write").api()
    first = register(client, form(tmp_path), **{"Idempotency-Key": "build-7"})
    second = register(client, form(tmp_path), **{"Idempotency-Key": "build-7"})
    assert first.json()["number"] == second.json()["number"] == 1
    assert Version.objects.count() == 1


def test_who_may_not_register_is_told_why(cast: Cast, tmp_path: Path) -> None:
    assert register(cast.ben.api(), form(tmp_path)).status_code == 403
    assert register(cast.token("rollouts:write").api(), form(tmp_path)).json()["code"] == "scope_missing"
    register(cast.ada.api(), form(tmp_path))
    refused = register(cast.cleo.api(), form(tmp_path))
    assert (refused.status_code, refused.json()["fields"]) == (409, {"service": "taken"})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"model": SimpleUploadedFile("m.onnx", b"PK\x03\x04....")}, "model"),
        ({"model": SimpleUploadedFile("m.onnx", b"junk")}, "model.onnx"),
        ({"service": "a/b"}, "service"),
        ({"service": "stats"}, "service"),
        ({"tenant": "nobody"}, "tenant"),
        ({"parent_number": "9"}, "parent_number"),
        ({"files": [SimpleUploadedFile(".hidden", b"x")]}, "files..hidden"),
        ({"files": [SimpleUploadedFile("model.onnx", b"x")]}, "files.model.onnx"),
        ({"contract": SimpleUploadedFile("c.yaml", b"a: [")}, "contract"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_refused_uploads_name_the_field_and_leave_nothing(
    cast: Cast, tmp_path: Path, fields: dict[str, Any], named: str
) -> None:
    for value in fields.values():
        for upload in value if isinstance(value, list) else [value]:
            if isinstance(upload, SimpleUploadedFile):
                upload.seek(0)
    answer = register(cast.ada.api(), form(tmp_path, **fields))
    assert answer.status_code == 400, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    assert list(answer.json()["fields"]) == [named]
    assert not Version.objects.exists()
    assert not list((store().root / "incoming").glob("*"))


def test_an_upload_past_the_limit_is_cut_off(
    cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.uploads.MODEL_BYTES", 1000)
    answer = register(cast.ada.api(), form(tmp_path, files=[SimpleUploadedFile("w.data", b"0" * 2000)]))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_json_is_not_taken_for_an_upload(cast: Cast) -> None:
    assert cast.ada.api().post(f"{API}/versions", {"service": "x"}, format="json").status_code == 415


@pytest.mark.parametrize("path", ["services/file-type", "models/file-type", "versions/file-type/1"])
def test_ben_sees_and_cleo_gets_404(cast: Cast, service: Service, path: str) -> None:
    assert cast.ben.api().get(f"{API}/{path}").status_code == 200
    assert cast.cleo.api().get(f"{API}/{path}").status_code == 404
    assert APIClient().get(f"{API}/{path}").status_code == 401


def test_a_chart_is_seen_by_whoever_sees_the_service(
    cast: Cast, service: Service, redis_server: RedisServer
) -> None:
    address = f"{API}/services/file-type/series?indicator=requests"
    assert cast.ben.api().get(address).status_code == 200
    assert cast.cleo.api().get(address).status_code == 404


@pytest.mark.parametrize("path", ["services", "models", "versions", "replicas"])
def test_lists_hold_only_what_is_yours_to_see(cast: Cast, service: Service, path: str) -> None:
    factories.replica(Version.objects.get(), pid=1)
    assert len(cast.ben.api().get(f"{API}/{path}").json()["results"]) == 1
    assert cast.cleo.api().get(f"{API}/{path}").json()["results"] == []


def test_a_quota_lets_its_tenant_see_the_service_but_not_change_it(cast: Cast, service: Service) -> None:
    factories.quota(cast.strange, on="file-type")
    cleo = cast.cleo.api()
    assert cleo.get(f"{API}/services/file-type").status_code == 200
    assert cleo.patch(f"{API}/services/file-type", {"description": "mine"}, format="json").status_code == 403


def test_an_edit_needs_the_revision_it_saw(cast: Cast, service: Service) -> None:
    ada = cast.ada.api()
    seen = ada.get(f"{API}/services/file-type")
    first = ada.patch(
        f"{API}/services/file-type", {"description": "one"}, format="json", headers={"If-Match": seen["ETag"]}
    )
    assert (first.status_code, first.json()["description"]) == (200, "one")
    late = ada.patch(
        f"{API}/services/file-type", {"description": "two"}, format="json", headers={"If-Match": seen["ETag"]}
    )
    assert (late.status_code, late.json()["code"]) == (409, "stale")
    assert (
        cast.ben.api().patch(f"{API}/services/file-type", {"description": "x"}, format="json").status_code
        == 403
    )


def test_nodes_are_seen_by_every_member(cast: Cast) -> None:
    factories.node("node-1")
    assert cast.cleo.api().get(f"{API}/nodes").json()["results"][0]["face"] == {"role": "ok", "word": "ready"}
    assert cast.ben.api().get(f"{API}/nodes/node-1").status_code == 200
    assert cast.ben.api().get(f"{API}/nodes/none").status_code == 404


def test_restart_has_a_dry_run_and_is_for_operators(cast: Cast, service: Service) -> None:
    replica = factories.replica(Version.objects.get(), pid=4711)
    address = f"{API}/replicas/{replica.pk}/restart"
    preview = cast.ada.api().post(f"{address}?dry_run=true")
    assert (preview.status_code, preview.json()["dry_run"]) == (200, True)
    assert "ends the batch in hand" in preview.json()["effect"]
    assert cast.ben.api().post(address).status_code == 403
    assert cast.cleo.api().post(address).status_code == 404
    done = cast.ada.api().post(address, {"reason": "slow"}, format="json")
    assert done.status_code == 202, done.content


def test_a_silent_replica_is_not_restarted(cast: Cast, service: Service) -> None:
    node = factories.node(silent_seconds=60)
    replica = factories.replica(Version.objects.get(), pid=4711, on=node)
    answer = cast.ada.api().post(f"{API}/replicas/{replica.pk}/restart")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize("path", ["services", "models", "versions", "replicas", "nodes"])
def test_lists_ask_the_database_a_fixed_number_of_times(
    cast: Cast, path: str, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for index in range(6):
        service = factories.service(f"service-{index}")
        version = factories.stable(1, of=service)
        factories.version(2, of=service)
        factories.replica(version, pid=index + 1)
    client = cast.ben.api()
    client.get(f"{API}/me")
    with django_assert_max_num_queries(10):
        assert client.get(f"{API}/{path}").status_code == 200


def test_pages_are_turned_by_cursor(cast: Cast) -> None:
    for number in range(1, 4):
        factories.version(number)
    first = cast.ben.api().get(f"{API}/versions?limit=2").json()
    assert [row["number"] for row in first["results"]] == [3, 2]
    second = cast.ben.api().get(first["next"]).json()
    assert [row["number"] for row in second["results"]] == [1]
