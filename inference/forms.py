"""The playground's form: what a model takes decides which fields it has."""

from django import forms
from django.http import HttpRequest

from console.services.models import Service
from console.ui.forms import PlainForm
from inference import playground
from inference.models import Version


class TryForm(PlainForm):
    """file or text for a model that takes whole files, body for one that takes tensors."""

    file = forms.FileField(
        required=False, label="File", help_text="At most 4 MiB; it goes to the model and nowhere else."
    )
    text = forms.CharField(
        required=False,
        label="or text",
        strip=False,
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
    )
    body = forms.CharField(
        required=False,
        label="or an inference request",
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false"}),
        help_text="Open Inference Protocol, JSON.",
    )
    version = forms.ChoiceField(required=False, help_text="By weight: as any client.")


def try_form(service: Service, request: HttpRequest | None = None) -> TryForm:
    """request: with a POST, the form is bound to what was typed."""
    posted = request is not None and request.method == "POST"
    data, files = (request.POST, request.FILES) if posted and request is not None else (None, None)
    form = TryForm(data, files)
    served = list(
        Version.objects.of(service)
        .filter(placements__weight_percent__gt=0)
        .order_by("-number")
        .values_list("number", flat=True)
    )
    choices = [("", "by weight"), *((str(number), f"version {number}") for number in served)]
    form.fields["version"].choices = choices  # type: ignore[attr-defined]  # a ChoiceField
    example = shape_of(service)
    if example is None:
        return form
    if not playground.file_input(example):
        del form.fields["file"], form.fields["text"]
        form.fields["body"].label = "Inference request"
        form.fields["body"].initial = playground.example_body(example)
    else:
        form.fields["body"].widget.attrs["placeholder"] = playground.example_body(example)
    return form


def shape_of(service: Service) -> Version | None:
    """The version whose contract the form follows: the stable one, else the newest."""
    stable = Version.objects.of(service).filter(placements__role="stable").first()
    return stable or Version.objects.of(service).order_by("-number").first()
