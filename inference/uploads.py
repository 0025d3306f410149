"""A model that arrives as multipart/form-data: bounded while it streams, then registered like any folder."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, cast

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import StopUpload, TemporaryFileUploadHandler
from django.http import HttpRequest
from rest_framework.parsers import DataAndFiles, MultiPartParser

from console.kit.errors import Invalid, TooLarge
from console.services.models import Service
from console.tenants.models import Tenant
from console.tenants.permissions import Actor, visible_tenants
from inference.actions import register_version
from inference.blobs import safe_path
from inference.intake import GRAPH
from inference.models import Version
from inference.serializers import CONTRACT_BYTES, FILE_BYTES, MODEL_BYTES, RegisterBody

_ZIP = b"PK\x03\x04"


class _Bounded(TemporaryFileUploadHandler):
    """To disk, never to memory, and no further than MODEL_BYTES for all files together."""

    received = 0
    overflowed = False

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        self.received += len(raw_data)
        if self.received > MODEL_BYTES:
            self.overflowed = True
            raise StopUpload(connection_reset=True)
        super().receive_data_chunk(raw_data, start)


class BoundedMultiPart(MultiPartParser):
    """Refuses by the declared length before reading, and by the received one for whoever declared less."""

    def parse(
        self, stream: Any, media_type: str | None = None, parser_context: Any = None
    ) -> DataAndFiles[Any, Any]:
        request = cast(HttpRequest, (parser_context or {})["request"]._request)
        declared = int(request.META.get("CONTENT_LENGTH") or 0)
        if declared > MODEL_BYTES:
            raise _too_large()
        handler = _Bounded(request)
        request.upload_handlers = [handler]
        parsed = super().parse(stream, media_type, parser_context)
        if handler.overflowed:
            raise _too_large()
        return parsed


def _too_large() -> TooLarge:
    return TooLarge("The upload is too large.", fields={"model": f"at most {MODEL_BYTES >> 20} MiB in all"})


def register_upload(data: Any, *, actor: Actor) -> Version:
    """data: the parsed form. Raises Invalid by field."""
    reader = RegisterBody(data=data)
    reader.is_valid(raise_exception=True)
    body = reader.validated_data
    tenant = _tenant(body, actor)
    parent = _parent(body, actor)
    incoming = settings.HOME / "blobs" / "incoming"
    incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=incoming) as folder:
        _lay_out(Path(folder), body)
        return register_version(
            body["service"],
            Path(folder),
            tenant=tenant,
            actor=actor,
            contract=_contract(body.get("contract")),
            note=body["note"],
            parent=parent,
        )


def _lay_out(folder: Path, body: dict[str, Any]) -> None:
    model: UploadedFile[bytes] = body["model"]
    head = model.read(len(_ZIP))
    model.seek(0)
    if head == _ZIP:
        raise Invalid(
            "Archives are not taken.",
            fields={"model": "send the .onnx graph, and what is beside it as `files`"},
        )
    _write(model, folder / GRAPH)
    wrong: dict[str, str] = {}
    for file in body.get("files", []):
        name = file.name or ""
        if not safe_path(name) or "/" in name:
            wrong[f"files.{name[:80]}"] = "a plain name of A-Z a-z 0-9 . _ - is needed"
        elif (folder / name).exists():
            wrong[f"files.{name}"] = "sent twice"
        elif (file.size or 0) > FILE_BYTES and not name.endswith((".data", ".onnx_data", ".bin")):
            wrong[f"files.{name}"] = f"more than {FILE_BYTES >> 20} MiB"
        else:
            _write(file, folder / name)
    if wrong:
        raise Invalid("Some files cannot be taken.", fields=wrong)


def _write(upload: UploadedFile[bytes], path: Path) -> None:
    with path.open("xb") as file:
        for chunk in upload.chunks(1 << 20):
            file.write(chunk)


def _contract(upload: UploadedFile[bytes] | None) -> bytes | None:
    if upload is None:
        return None
    if (upload.size or 0) > CONTRACT_BYTES:
        raise Invalid(
            "The contract is too large.", fields={"contract": f"more than {CONTRACT_BYTES >> 10} KiB"}
        )
    content: bytes = upload.read()
    return content


def _tenant(body: dict[str, Any], actor: Actor) -> Tenant:
    """The one named, else the service's own, else the caller's only one."""
    mine = visible_tenants(actor)
    slug = body.get("tenant")
    if slug:
        found = mine.filter(slug=slug).first()
        if found is None:
            raise Invalid("The version cannot be registered.", fields={"tenant": "not a tenant of yours"})
        return found
    service = Service.objects.for_actor(actor).filter(name=body["service"]).select_related("tenant").first()
    if service is not None:
        return service.tenant
    several = list(mine[:2])
    if len(several) != 1:
        raise Invalid("Whose service is it?", fields={"tenant": "name one of your tenants"})
    return several[0]


def _parent(body: dict[str, Any], actor: Actor) -> Version | None:
    number = body.get("parent_number")
    if number is None:
        return None
    rows = Version.objects.for_actor(actor).filter(service__name=body["service"], number=number)
    found = rows.first()
    if found is None:
        raise Invalid(
            "The version cannot be registered.", fields={"parent_number": "no such version of this service"}
        )
    return found
