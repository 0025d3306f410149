"""The playground: what it sends to the plane, and what a person reads back."""

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from console.tenants.models import Tenant
from console.tenants.tokens import digest
from inference import playground, snapshot
from tests import factories
from tests.cast import Cast

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
FILE_CONTRACT: dict[str, Any] = {
    **factories.CONTRACT,
    "spec": {
        **factories.CONTRACT["spec"],
        "hooks": {
            "preprocess": {"kind": "byte_windows", "input": "file", "output": "bytes"},
            "postprocess": None,
        },
    },
}


class Plane:
    """Answers as a plane would and remembers what it was sent."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: dict[str, Any] = {
            "model_name": "file-type",
            "outputs": [
                {"name": "label", "datatype": "BYTES", "shape": [1, 1], "data": ["shell"]},
                {"name": "score", "datatype": "FP32", "shape": [1, 1], "data": [0.98765]},
            ],
        }
        self.path, self.body = "", b""
        self.headers: dict[str, str] = {}
        plane = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                plane.path, plane.headers = self.path, dict(self.headers)
                plane.body = self.rfile.read(int(self.headers["Content-Length"]))
                content = json.dumps(plane.answer).encode()
                self.send_response(plane.status)
                self.send_header("x-pilothouse-version", "2")
                self.send_header("x-request-id", "r-1")
                self.send_header("Retry-After", "3")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def plane(settings: Any) -> Iterator[Plane]:
    made = Plane()
    settings.PLANE_URL = made.url
    yield made
    made.server.shutdown()
    made.server.server_close()


def serving(contract: dict[str, Any] = FILE_CONTRACT) -> None:
    version = factories.stable(1)
    version.contract = contract
    version.save(update_fields=["contract"])


def test_text_goes_as_one_binary_element_with_the_tenants_key(cast: Cast, plane: Plane) -> None:
    serving()
    answer = cast.ben.pages().post("/services/file-type/try", {"text": "#!/bin/sh\n"}, headers=HTMX)
    page = answer.content.decode()
    assert "<output>shell</output>" in page
    assert "score 0.988" in page
    assert "version 2" in page
    assert plane.path == "/v2/models/file-type/infer"
    header = int(plane.headers["Inference-Header-Content-Length"])
    assert plane.body[header:] == b"\x0a\x00\x00\x00#!/bin/sh\n"
    secret = plane.headers["Authorization"].removeprefix("Bearer ")
    keys = {key.sha256: key.tenant for key in snapshot.current().keys}
    assert keys[digest(secret)] == "platform"
    assert secret not in page


def test_a_pinned_version_has_its_own_address(cast: Cast, plane: Plane) -> None:
    serving()
    cast.ben.pages().post("/services/file-type/try", {"text": "x", "version": "1"}, headers=HTMX)
    assert plane.path == "/v2/models/file-type/versions/1/infer"


def test_a_client_calls_in_its_own_name(cast: Cast, plane: Plane) -> None:
    serving()
    factories.quota("strange")
    page = cast.cleo.pages().post("/services/file-type/try", {"text": "x"}, headers=HTMX).content.decode()
    assert "as strange" in page
    assert (
        plane.headers["Authorization"] == f"Bearer {playground.secret_of(Tenant.objects.get(slug='strange'))}"
    )


def test_a_refusal_of_the_plane_is_shown_as_it_is(cast: Cast, plane: Plane) -> None:
    serving()
    plane.status, plane.answer = 429, {"error": "quota requests_per_second is spent"}
    page = cast.ben.pages().post("/services/file-type/try", {"text": "x"}, headers=HTMX).content.decode()
    assert "quota requests_per_second is spent" in page
    assert "Try again in 3 s." in page


def test_a_plane_that_is_away_is_a_sentence(cast: Cast, settings: Any) -> None:
    serving()
    settings.PLANE_URL = "http://127.0.0.1:1"
    answer = cast.ben.pages().post("/services/file-type/try", {"text": "x"}, headers=HTMX)
    assert answer.status_code == 422
    assert "did not answer" in answer.content.decode()


def test_nothing_to_send_and_broken_json_name_their_field(cast: Cast, plane: Plane) -> None:
    serving()
    ben = cast.ben.pages()
    assert "Choose or type something." in ben.post("/services/file-type/try", {}).content.decode()
    page = ben.post("/services/file-type/try", {"body": "{"}).content.decode()
    assert "#id_body" in page
    assert plane.path == ""


def test_a_model_of_tensors_gets_a_body_that_fits_it(cast: Cast) -> None:
    serving(factories.CONTRACT)
    form = cast.ben.pages().get("/services/file-type/try").context["form"]
    assert list(form.fields) == ["body", "version"]
    (tensor,) = json.loads(form.fields["body"].initial)["inputs"]
    assert (tensor["name"], tensor["shape"], len(tensor["data"])) == ("bytes", [1, 2048], 2048)


@pytest.mark.parametrize("content", [b"plain text", b'it\'s \\ 100 % "quoted"\n', bytes(range(1, 127))])
def test_the_printed_curl_sends_the_same_bytes(plane: Plane, content: bytes) -> None:
    call = playground.call_with_bytes("file-type", None, "file", content)
    script = playground.as_curl(call)
    subprocess.run(
        ["bash", "-c", script],
        check=True,
        capture_output=True,
        timeout=20,
        env={"PILOTHOUSE_KEY": "ph_x", "PATH": "/usr/bin:/bin"},
    )
    assert plane.body == call.header + call.tail
    assert plane.headers["Inference-Header-Content-Length"] == str(len(call.header))
