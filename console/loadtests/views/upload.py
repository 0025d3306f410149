"""`/loadtests/upload`: figures of another tool, read and drawn as ours."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from console.kit.errors import OperationError
from console.loadtests import actions, reports
from console.loadtests.present import address_of
from console.loadtests.views.new import choices_of
from console.services.models import Service
from console.tenants.permissions import actor_of, may, visible_tenants
from console.ui.access import found, page
from console.ui.forms import ReasonForm, refuse
from console.ui.scope import reader_of


class UploadForm(ReasonForm):
    service = forms.ChoiceField(help_text="Which service it is about.")
    tenant = forms.ChoiceField(help_text="Whose members may see it.")
    file = forms.FileField(label="CSV", help_text="With a line of column names. One row for each request.")
    columns = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        label="Column names",
        help_text="One a line, ours=theirs, for a file with other names than ours: duration=latency_ms.",
    )
    thresholds = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text="One a line: p99=250ms, mean=40ms, errors=1%, qps=500.",
    )
    title = forms.CharField(max_length=120, required=False, help_text="Where it comes from.")
    field_order = ("service", "tenant", "file", "columns", "thresholds", "title", "reason")

    def clean_columns(self) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for line in str(self.cleaned_data["columns"]).splitlines():
            ours, sign, theirs = (part.strip() for part in line.partition("="))
            if not (ours or theirs):
                continue
            if not (ours and sign and theirs):
                raise forms.ValidationError(f"{line.strip()!r} is not ours=theirs.")
            pairs[ours] = theirs
        return pairs


@page("GET", "HEAD", "POST")
def upload(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    start: dict[str, Any] = {"service": request.GET.get("service", "")}
    form = UploadForm(request.POST or None, request.FILES or None, initial=start)
    names = (
        Service.objects.for_actor(reader_of(request)).order_by("name").values_list("name", flat=True)[:500]
    )
    choices_of(form, "service").choices = [(name, name) for name in names]
    tenants = [one.slug for one in visible_tenants(actor) if may(actor, "loadtest.start", one)]
    choices_of(form, "tenant").choices = [(slug, slug) for slug in tenants]
    if request.method == "POST" and form.is_valid():
        typed = form.cleaned_data
        try:
            service = found(Service.objects.for_actor(actor).select_related("tenant"), name=typed["service"])
            made = actions.upload(
                service,
                actions.tenant_for(service, actor, typed["tenant"]),
                typed["file"].chunks(),
                actor=actor,
                columns=typed["columns"],
                thresholds=typed["thresholds"].splitlines(),
                title=typed["title"],
                reason=typed["reason"],
            )
            messages.success(request, made.message, extra_tags="ok")
            return HttpResponseRedirect(address_of(made))
        except OperationError as error:
            refuse(form, error)
    context = {"form": form, "may_start": bool(tenants), "known": reports.COLUMNS}
    return render(request, "loadtests/upload.html", context, status=422 if form.errors else 200)
