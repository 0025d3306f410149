"""REST of load tests: who may, what is refused, idempotency, the preview, uploads and the stop."""

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from rest_framework.test import APIClient

from console.audit.models import Entry
from console.loadtests.models import LoadTest
from console.services.models import Service
from tests import factories
from tests.cast import Cast
from tests.loadtests.rows import csv_text

LOADTESTS = "/api/v1/loadtests"
BODY: dict[str, Any] = {
    "service": "file-type",
    "rate": 20,
    "duration_seconds": 10,
    "thresholds": ["p99=250ms", "errors=1%"],
}


def post(api: APIClient, path: str = LOADTESTS, body: Any = None, **headers: str) -> Any:
    return api.post(path, BODY if body is None else body, format="json", headers=headers)


def upload(api: APIClient, text: str, **fields: Any) -> Any:
    file = SimpleUploadedFile("out.csv", text.encode())
    return api.post(
        f"{LOADTESTS}/upload", {"service": "file-type", "file": file, **fields}, format="multipart"
    )


def test_ada_asks_for_a_run(cast: Cast, service: Service) -> None:
    answer = post(cast.ada.api(), body={**BODY, "reason": "before the release"})
    assert answer.status_code == 201
    body = answer.json()
    assert (body["state"], body["tenant"], body["verbs"]) == ("queued", "platform", ["cancel"])
    assert body["url"] == answer["Location"] == f"{LOADTESTS}/{body['id']}"
    assert answer["ETag"] == '"1"'
    entry = Entry.objects.get(verb="loadtest.start")
    assert (entry.actor, entry.reason, entry.tenant) == ("user:ada", "before the release", "platform")


def test_who_may_do_what(cast: Cast, service: Service) -> None:
    made = post(cast.ada.api()).json()
    address = made["url"]
    assert APIClient().get(address).status_code == 401
    assert cast.ben.api().get(address).status_code == 200
    assert post(cast.ben.api()).status_code == 403
    assert post(cast.ben.api(), f"{address}/cancel", {}).status_code == 403
    for path in (address, f"{address}/series?indicator=p99", f"{address}/csv"):
        assert cast.cleo.api().get(path).status_code == 404
    assert post(cast.cleo.api()).status_code == 404
    assert post(cast.cleo.api(), f"{address}/cancel", {}).status_code == 404
    assert cast.cleo.api().get(LOADTESTS).json()["results"] == []
    assert post(cast.token("read").api()).json()["code"] == "scope_missing"
    assert post(cast.token("loadtests:write").api(), f"{address}/cancel", {}).status_code == 200


def test_a_tenant_with_a_grant_tests_a_foreign_service_under_its_own_quota(
    cast: Cast, service: Service
) -> None:
    factories.quota("strange", requests_per_second=5)
    body = post(cast.cleo.api()).json()
    assert body["tenant"] == "strange"
    assert cast.ada.api().get(body["url"]).status_code == 404
    said = post(cast.cleo.api(), f"{LOADTESTS}?dry_run=true").json()
    assert said["code"] == "conflict"


def test_the_preview_tells_rate_time_total_and_the_quota_and_starts_nothing(
    cast: Cast, service: Service
) -> None:
    factories.quota("platform", requests_per_second=5, concurrency=2)
    said = post(cast.ada.api(), f"{LOADTESTS}?dry_run=true").json()
    assert "20 requests/s at random moments for 10 s, 200 in all" in said["effect"]
    assert any("5 requests/s; what goes beyond is refused" in one for one in said["affected"])
    assert not LoadTest.objects.exists()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"rate": 0}, "rate"),
        ({"rate": 1e9}, "rate"),
        ({"duration_seconds": 3600}, "duration_seconds"),
        ({"rate": 15000, "duration_seconds": 600}, "duration_seconds"),
        ({"connections": 5000}, "connections"),
        ({"warmup_seconds": -1}, "warmup_seconds"),
        ({"mode": "sideways"}, "mode"),
        ({"thresholds": ["p99=soon"]}, "thresholds"),
        ({"thresholds": ["qps=10ms"]}, "thresholds"),
        ({"thresholds": ["p99=1ms"] * 20}, "thresholds"),
        ({"tenant": "nobody"}, "tenant"),
        ({"speed": 3}, "speed"),
    ],
)
def test_what_goes_beyond_the_caps_is_refused_by_name(
    cast: Cast, service: Service, changes: dict[str, Any], field: str
) -> None:
    answer = post(cast.ada.api(), body={**BODY, **changes})
    assert (answer.status_code, field in answer.json()["fields"]) == (400, True)
    assert not LoadTest.objects.exists()


def test_a_service_is_tested_by_one_at_a_time(cast: Cast, service: Service) -> None:
    first = post(cast.ada.api()).json()
    second = post(cast.ada.api())
    assert second.status_code == 409
    assert f"Load test {first['id']}" in second.json()["detail"]


def test_the_same_key_starts_one_test(cast: Cast, service: Service) -> None:
    api = cast.ada.api()
    first, again = (post(api, **{"Idempotency-Key": "build-7"}) for _ in range(2))
    assert first.json()["id"] == again.json()["id"]
    assert LoadTest.objects.count() == 1


def test_a_queued_one_is_cancelled_at_once_and_only_once(cast: Cast, service: Service) -> None:
    api, made = cast.ada.api(), post(cast.ada.api()).json()
    address = f"{made['url']}/cancel"
    assert post(api, address, {}, **{"If-Match": '"7"'}).status_code == 409
    assert post(api, address, {}).json()["state"] == "cancelled"
    assert post(api, address, {}).status_code == 409
    assert post(api).status_code == 201


def test_our_own_csv_is_read_and_judged(cast: Cast, service: Service) -> None:
    answer = upload(cast.ada.api(), csv_text(), thresholds=["p99=50ms", "errors=1%"], title="last week")
    assert answer.status_code == 201
    body = answer.json()
    assert (body["state"], body["kind"], body["verdict"]) == ("finished", "upload", "missed")
    assert (body["requests"], body["error_count"]) == (200, 4)
    met = {line["figure"]: line["met"] for line in body["judged"]}
    assert met == {"p99": True, "errors": False}
    assert "errors 2 % is above the limit 1 %" in [line["sentence"] for line in body["judged"]]
    got = cast.ben.api().get(f"{body['url']}/csv")
    assert got.getvalue().decode() == csv_text()
    for indicator in ("p50", "p95", "p99", "qps", "errors", "distribution"):
        points = cast.ben.api().get(f"{body['url']}/series?indicator={indicator}").json()["points"]
        assert points and all(len(point) == 2 for point in points)
    assert cast.ben.api().get(f"{body['url']}/series?indicator=luck").status_code == 400


def test_a_foreign_csv_is_read_by_its_own_column_names(cast: Cast, service: Service) -> None:
    text = csv_text().replace("ts,scenario,duration_ns,status", "start,label,elapsed_ns,code")
    refused = upload(cast.ada.api(), text)
    assert refused.status_code == 400
    assert "duration_ns" in refused.json()["fields"]["columns"]
    columns = '{"ts": "start", "duration_ns": "elapsed_ns", "status": "code"}'
    assert upload(cast.ada.api(), text, columns=columns).json()["requests"] == 200


@pytest.mark.parametrize(
    "text", ["", "ts,duration_ns,status\n", "ts,duration_ns,status\n1,soon,200\n", "\x00\x01"]
)
def test_what_is_no_csv_leaves_nothing_behind(cast: Cast, service: Service, text: str, settings: Any) -> None:
    assert upload(cast.ada.api(), text or " ").status_code == 400
    assert not LoadTest.objects.exists()
    assert list((settings.HOME / "loadtests").iterdir()) == []


def test_a_file_that_is_too_long_is_refused(
    cast: Cast, service: Service, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr("console.loadtests.files.MOST_BYTES", 1000)
    answer = upload(cast.ada.api(), csv_text())
    assert "MiB" in answer.json()["fields"]["file"]
    assert list((settings.HOME / "loadtests").iterdir()) == []


def test_the_list_is_paged_and_filtered(cast: Cast, service: Service) -> None:
    for _ in range(3):
        upload(cast.ada.api(), csv_text(rows=20))
    api = cast.ben.api()
    page = api.get(f"{LOADTESTS}?limit=2").json()
    assert len(page["results"]) == 2
    assert len(api.get(page["next"]).json()["results"]) == 1
    assert api.get(f"{LOADTESTS}?state=queued").json()["results"] == []
    assert api.get(f"{LOADTESTS}?state=lost").status_code == 400
    assert len(api.get(f"{LOADTESTS}?service=file-type").json()["results"]) == 3
