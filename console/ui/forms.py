"""Forms of pages. They only read and keep what was typed: what is right is decided by the actions."""

from typing import Any, TypeVar

from django import forms

from console.kit.errors import OperationError

F = TypeVar("F", bound=forms.BaseForm)


class PlainForm(forms.Form):
    """Marks each wrong field for readers, and ties help and error to it by id."""

    template_name_label = "django/forms/label.html"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("label_suffix", "")
        super().__init__(*args, **kwargs)
        self.use_required_attribute = False  # the server's sentence says more than the browser's bubble


class ReasonForm(PlainForm):
    reason = forms.CharField(
        max_length=500, required=False, help_text="Stands in the activity log beside your name."
    )


def refuse(form: F, error: OperationError) -> F:
    """Put a refusal under its fields; what belongs to no field of this form goes on top."""
    placed = False
    for name, why in error.fields.items():
        if name in form.fields:
            form.add_error(name, sentence(why))
            placed = True
        else:
            form.add_error(None, f"{name}: {why}")
    if not placed or not error.fields:
        form.add_error(None, error.detail)
    return form


def sentence(why: str) -> str:
    """`already taken` -> `Already taken.`"""
    text = why[:1].upper() + why[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
