"""`/activity`: sorted by its headers, and exported as shown, with a line that tells so."""

import csv
import io
import json

import pytest

from console.audit.log import record
from console.audit.models import Entry
from tests.cast import Cast

pytestmark = pytest.mark.django_db


def tell(target: str, actor: str = "user:ada", tenant: str = "platform", reason: str = "") -> None:
    record(actor, "service.edit", target, tenant=tenant, reason=reason)


def targets(cast: Cast, query: str) -> list[str]:
    return [entry.target for entry in cast.ben.pages().get(f"/activity{query}").context["listing"].rows]


def test_headers_sort_and_say_so(cast: Cast) -> None:
    for name in ("service:b", "service:a", "service:c"):
        tell(name)
    assert targets(cast, "") == ["service:c", "service:a", "service:b"]
    assert targets(cast, "?sort=at") == ["service:b", "service:a", "service:c"]
    assert targets(cast, "?sort=target") == ["service:a", "service:b", "service:c"]
    assert targets(cast, "?sort=-target") == ["service:c", "service:b", "service:a"]
    assert targets(cast, "?sort=before") == targets(cast, "?sort=-at") == targets(cast, "")
    page = cast.ben.pages().get("/activity?sort=target&q=service").content.decode()
    assert '<th scope="col" aria-sort="ascending"><a href="?q=service&amp;sort=-target"' in page


def test_an_export_holds_what_is_shown_and_leaves_a_line(cast: Cast) -> None:
    tell("service:ours", reason="=cmd()")
    tell("service:other")
    tell("service:ours", tenant="strange", reason="theirs")
    answer = cast.ben.pages().post("/activity/export/csv?q=ours")
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [(row["target"], row["reason"]) for row in rows] == [("service:ours", "'=cmd()")]
    assert answer["Content-Disposition"].endswith('.csv"')
    entry = Entry.objects.get(verb="audit.export")
    assert (entry.actor, entry.reason) == ("user:ben", "1 rows as csv")
    assert entry.after == {"rows": 1, "format": "csv", "filters": "q:ours"}


def test_json_lines_keep_before_and_after(cast: Cast) -> None:
    record("user:ada", "service.edit", "service:a", tenant="platform", before={"x": 1}, after={"x": 2})
    answer = cast.ben.pages().post("/activity/export/jsonl")
    (row,) = [json.loads(line) for line in answer.content.splitlines()]
    assert (row["before"], row["after"], row["actor"]) == ({"x": 1}, {"x": 2}, "user:ada")


def test_an_export_is_bounded(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.ui.views.activity.MOST_EXPORTED", 3)
    for number in range(5):
        tell(f"service:{number}")
    ben = cast.ben.pages()
    assert "Export the first 3 of these as" in ben.get("/activity").content.decode()
    assert len(ben.post("/activity/export/jsonl").content.splitlines()) == 3


def test_only_known_forms_are_exported_and_only_by_post(cast: Cast) -> None:
    ben = cast.ben.pages()
    assert ben.post("/activity/export/pdf").status_code == 404
    assert ben.get("/activity/export/csv").status_code == 405
