"""Registering a version from the browser, and the page of one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from console.kit.errors import Forbidden, Invalid, OperationError
from console.tenants.models import Tenant
from console.tenants.permissions import actor_of, may, require, visible_tenants
from console.ui.access import found, page
from console.ui.forms import PlainForm, refuse
from inference import actions
from inference.models import Replica, Version
from inference.views.service import replica_line, visible_service

MOST_FILES = 64


class FilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True
    template_name = "django/forms/widgets/file.html"


class FilesField(forms.FileField):
    """Several files at once; Django's own field keeps only the last."""

    widget = FilesInput

    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile[bytes]]:
        files = data if isinstance(data, list | tuple) else [data]
        return [super(FilesField, self).clean(one, initial) for one in files]


class VersionForm(PlainForm):
    models = FilesField(
        label="Model files",
        help_text="One .onnx graph, and what belongs to it: external data, labels, contract.yaml.",
    )
    contract = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"spellcheck": "false", "rows": 14}),
        help_text="ModelContract as YAML. Empty: the contract.yaml among the files, else inferred from the graph.",
    )
    note = forms.CharField(max_length=500, required=False, help_text="What is new in it.")

    def clean_models(self) -> list[UploadedFile[bytes]]:
        files: list[UploadedFile[bytes]] = self.cleaned_data["models"]
        if len(files) > MOST_FILES:
            raise forms.ValidationError(f"At most {MOST_FILES} files.")
        if not any(str(one.name).endswith(".onnx") for one in files):
            raise forms.ValidationError("One of them must be an .onnx graph.")
        return files


class ServiceForm(VersionForm):
    name = forms.CharField(
        max_length=255, help_text="What clients call: letters, digits, dot, dash, underscore."
    )
    tenant = forms.ChoiceField(help_text="Who owns the service.")
    field_order = ("name", "tenant", "models", "contract", "note")


@page("GET", "HEAD", "POST")
def new_service(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    owners = [one for one in visible_tenants(actor) if may(actor, "service.register", one)]
    if not owners:
        raise Forbidden(
            "service.register needs the role operator in a tenant. An admin of yours can give it."
        )
    form = ServiceForm(request.POST or None, request.FILES or None)
    form.fields["tenant"].choices = [(one.slug, one.slug) for one in owners]  # type: ignore[attr-defined]  # a ChoiceField
    if request.method == "POST" and form.is_valid():
        owner = next(one for one in owners if one.slug == form.cleaned_data["tenant"])
        version = _register(request, form, form.cleaned_data["name"], owner)
        if version is not None:
            return HttpResponseRedirect(reverse("inference:service", args=[version.service.name]))
    return _form_page(request, form, "Register a service", "Register service", reverse("inference:services"))


@page("GET", "HEAD", "POST")
def new_version(request: HttpRequest, name: str) -> HttpResponse:
    actor = actor_of(request)
    service = visible_service(actor, name)
    require(actor, "version.register", service.tenant, visible=True)
    form = VersionForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        version = _register(request, form, name, service.tenant)
        if version is not None:
            return HttpResponseRedirect(reverse("inference:version", args=[name, version.number]))
    back = reverse("inference:service", args=[name])
    return _form_page(request, form, f"Register a version of {name}", "Register version", back)


def _register(request: HttpRequest, form: VersionForm, name: str, owner: Tenant) -> Version | None:
    """None: refused, and the form says why."""
    typed = form.cleaned_data
    try:
        with tempfile.TemporaryDirectory(prefix="upload-", dir=_uploads()) as folder:
            _write(typed["models"], Path(folder))
            version = actions.register_version(
                name,
                Path(folder),
                tenant=owner,
                actor=actor_of(request),
                contract=typed["contract"].strip() or None,
                note=typed["note"],
                most_bytes=settings.MAX_UPLOAD_BYTES,
            )
    except OperationError as error:
        refuse(form, _by_field(error))
        return None
    told = "It serves all traffic." if version.number == 1 else "It gets traffic only by a rollout."
    messages.success(request, f"Registered version {version.number} of {name}. {told}", extra_tags="ok")
    return version


def _uploads() -> Path:
    """Beside the blobs, so that a large model is not written to a small /tmp."""
    folder = Path(settings.HOME) / "uploads"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _write(files: list[UploadedFile[bytes]], folder: Path) -> None:
    for one in files:
        # Django keeps only the last part of the name; the intake checks the rest.
        target = folder / Path(str(one.name)).name
        if target.exists():
            raise Invalid("Two files have the same name.", fields={"models": f"{target.name} is there twice"})
        with target.open("xb") as out:
            for chunk in one.chunks():
                out.write(chunk)


def _by_field(error: OperationError) -> OperationError:
    """The action names fields of contract and files; the form has one field for each."""
    fields: dict[str, str] = {}
    for name, why in error.fields.items():
        if name in ("name", "service"):
            field, text = "name", why
        elif name == "tenant":
            field, text = name, why
        elif name == "contract" or name.startswith(("spec", "metadata", "apiVersion", "kind")):
            field, text = "contract", why if name == "contract" else f"{name} {why}"
        else:
            field, text = "models", why if name in ("models", "path") else f"{name} {why}"
        fields[field] = f"{fields[field]}; {text}" if field in fields else text
    return (
        type(error)(error.detail, fields=fields)
        if type(error) in (Invalid,)
        else OperationError(error.detail, fields=fields)
    )


def _form_page(request: HttpRequest, form: VersionForm, title: str, action: str, back: str) -> HttpResponse:
    context = {"form": form, "title": title, "action": action, "back": back}
    return render(request, "services/register.html", context, status=422 if form.errors else 200)


@page()
def version(request: HttpRequest, name: str, number: int) -> HttpResponse:
    actor = actor_of(request)
    service = visible_service(actor, name)
    row = found(Version.objects.of(service).select_related("service", "parent"), number=number)
    replicas = Replica.objects.of(row).select_related("node", "version__service")
    context = {
        "service": service,
        "version": row,
        "placement": row.placements.filter(service=service).first(),
        "aliases": [alias.name for alias in row.aliases.all()],
        "children": row.children.order_by("number"),
        "replicas": [replica_line(one) for one in replicas],
        "size": sum(one["size"] for one in row.files),
        "may_start": may(actor, "rollout.start", service.tenant),
    }
    return render(request, "services/version.html", context)
