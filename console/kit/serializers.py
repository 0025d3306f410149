"""Strict reading of JSON: an unknown name or a wrong type is refused by field instead of being dropped or converted."""

import difflib
import math
from collections.abc import Mapping
from typing import Any

from django.http import QueryDict
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

# Beyond this a JSON number is no longer exact for a JavaScript reader, nor fits a 64-bit column with room to add.
_EXACT = 2**53

_KINDS: tuple[tuple[type[serializers.Field[Any, Any, Any, Any]], tuple[type, ...], str], ...] = (
    (serializers.BooleanField, (bool,), "true or false"),
    (serializers.IntegerField, (int,), "a whole number"),
    (serializers.FloatField, (int, float), "a number"),
    (serializers.CharField, (str,), "text"),
    (serializers.ChoiceField, (str,), "text"),
    (serializers.DateTimeField, (str,), "a time in ISO 8601"),
    (serializers.UUIDField, (str,), "text"),
    (serializers.ListField, (list,), "a list"),
    (serializers.ListSerializer, (list,), "a list"),
    (serializers.DictField, (dict,), "an object"),
    (serializers.Serializer, (dict,), "an object"),
)
_WORDS = {
    bool: "a truth value",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}


class StrictSerializer(serializers.Serializer[Any]):
    """Base of everything that reads a request body."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return super().to_internal_value(data)
        wrong = self._unknown(data)
        if not isinstance(
            data, QueryDict
        ):  # a form carries text only, so its types are the fields' to convert
            for name, field in self.fields.items():
                if name in data and (problem := type_problem(field, data[name])):
                    wrong[name] = [problem]
        if not wrong:
            return super().to_internal_value(data)
        raise ValidationError({**self._other_errors(data, wrong), **wrong})

    def _unknown(self, data: Mapping[str, Any]) -> dict[str, list[str]]:
        writable = [name for name, field in self.fields.items() if not field.read_only]
        wrong: dict[str, list[str]] = {}
        for name in data:
            if name in self.fields and name not in writable:
                wrong[name] = ["cannot be set"]
            elif name not in writable:
                near = difflib.get_close_matches(str(name), writable, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                wrong[str(name)[:100]] = [f"unknown field{hint}"]
        return wrong

    def _other_errors(self, data: Mapping[str, Any], wrong: Mapping[str, Any]) -> dict[str, Any]:
        """So that a caller sees everything at once, not one mistake for each attempt."""
        rest = {name: value for name, value in data.items() if name not in wrong}
        try:
            super().to_internal_value(rest)
        except ValidationError as error:
            if isinstance(error.detail, Mapping):
                return {name: why for name, why in error.detail.items() if name not in wrong}
        return {}


def type_problem(field: Any, value: Any) -> str | None:
    """Why `value` is no JSON value of the field's kind; None when it is, or when the field judges by itself."""
    if value is None:
        return None  # allow_null decides
    for kind, accepted, word in _KINDS:
        if not isinstance(field, kind):
            continue
        if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
            return f"expected {word}, got {_WORDS.get(type(value), type(value).__name__)}"
        if isinstance(value, int) and abs(value) > _EXACT:
            return "the number is too large"
        if isinstance(value, float) and not math.isfinite(value):
            return "the number is too large"
        if isinstance(field, serializers.ListField) and isinstance(value, list):
            return _item_problem(field.child, value)
        return None
    return None


def _item_problem(child: Any, items: list[Any]) -> str | None:
    problems = ((number, type_problem(child, item)) for number, item in enumerate(items))
    return next((f"item {number}: {why}" for number, why in problems if why), None)
