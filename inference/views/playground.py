"""`/services/<name>/try`: one request to the plane, its answer, and the same call as curl."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from console.kit.errors import Forbidden, Invalid, OperationError
from console.services.models import Service
from console.tenants.models import Quota, Tenant
from console.tenants.permissions import Actor, actor_of, may, visible_tenants
from console.ui.access import is_fragment, page
from console.ui.forms import refuse
from console.ui.scope import chosen_tenant
from inference import playground
from inference.forms import TryForm, shape_of, try_form
from inference.playground import Call
from inference.views.service import visible_service


@page("GET", "HEAD", "POST")
def try_it(request: HttpRequest, name: str) -> HttpResponse:
    actor = actor_of(request)
    service = visible_service(actor, name)
    tenant = calling_tenant(request, actor, service)
    form = try_form(service, request)
    context: dict[str, Any] = {"service": service, "form": form, "tenant": tenant}
    if request.method == "POST" and form.is_valid():
        try:
            call = _call(service, form)
            context |= {"answer": playground.send(call, tenant), "curl": playground.as_curl(call)}
        except OperationError as error:
            refuse(form, error)
    if is_fragment(request):
        return render(request, "services/answer.html", context, status=422 if form.errors else 200)
    return render(request, "services/try.html", context, status=422 if form.errors else 200)


def _call(service: Service, form: TryForm) -> Call:
    typed = form.cleaned_data
    pinned = int(typed["version"]) if typed["version"] else None
    example = shape_of(service)
    name = playground.file_input(example) if example is not None else ""
    if upload := typed.get("file"):
        if upload.size > playground.MOST_BYTES:
            raise Invalid("The file is too large to try here.", fields={"file": "at most 4 MiB"})
        return playground.call_with_bytes(service.name, pinned, name, upload.read(), file_name=upload.name)
    if text := typed.get("text"):
        return playground.call_with_bytes(service.name, pinned, name, text.encode())
    if body := typed.get("body"):
        return playground.call_with_json(service.name, pinned, body)
    raise Invalid(
        "There is nothing to send.",
        fields={"file" if "file" in form.fields else "body": "choose or type something"},
    )


def calling_tenant(request: HttpRequest, actor: Actor, service: Service) -> Tenant:
    """In whose name the request goes: the chosen tenant, the owner, else one that holds a grant."""
    granted = set(Quota.objects.filter(service=service.name).values_list("tenant_id", flat=True))
    able = [
        one
        for one in visible_tenants(actor)
        if may(actor, "service.try", one) and (one.pk == service.tenant_id or one.pk in granted)
    ]
    chosen = chosen_tenant(request)
    able.sort(key=lambda one: (chosen is None or one.pk != chosen.pk, one.pk != service.tenant_id))
    if not able:
        raise Forbidden(f"None of your tenants may call {service.name}.")
    return able[0]
