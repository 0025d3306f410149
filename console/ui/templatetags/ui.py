"""Filters and tags of every template: times, sizes, shapes and the URL's own parameters."""

import json
from datetime import datetime
from typing import Any

from django import template
from django.template.context import RequestContext
from django.utils.safestring import SafeString

from console.kit import clock
from console.ui import diffs
from console.ui.words import span

register = template.Library()

register.filter(span)


@register.filter
def age(at: datetime | None) -> str:
    """4 min; the template adds `ago`."""
    if at is None:
        return "never"
    return span(float(int(max((clock.now() - at).total_seconds(), 0.0))))


@register.filter
def size(count: float | None) -> str:
    """Bytes in binary units: 512 MiB."""
    if not count:
        return "–"
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return "–"


@register.filter
def shape(sizes: list[int]) -> str:
    """[-1, 2048] -> n × 2048"""
    return " × ".join("n" if size < 0 else str(size) for size in sizes) or "scalar"


@register.filter
def plain(value: Any) -> str:
    """A number without needless zeros, anything else as it is; None as a dash."""
    if value is None or value == "":
        return "–"
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


@register.filter
def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False)


@register.filter
def by_key(mapping: dict[str, Any] | None, key: Any) -> Any:
    """mapping[key], empty when there is none: templates cannot subscript by a variable."""
    return (mapping or {}).get(key, "")


@register.filter
def named(target: str) -> str:
    """An actor or target as people say it: `user:ada` -> ada, `rollout:42` -> rollout 42."""
    kind, _, name = target.partition(":")
    if not name:
        return target
    return name if kind in ("user", "service") else f"{kind} {name}"


@register.simple_tag
def difference(before: Any, after: Any) -> list[diffs.Line]:
    return diffs.compare(before, after)


@register.simple_tag(takes_context=True)
def query(context: RequestContext, **changes: Any) -> str:
    """The present URL's parameters with these changed; an empty value removes one. `part` never survives."""
    parameters = context["request"].GET.copy()
    parameters.pop("part", None)
    for name, value in changes.items():
        parameters.pop(name, None)
        if value not in ("", None):
            parameters[name] = str(value)
    encoded: str = parameters.urlencode()
    return f"?{encoded}" if encoded else "?"


@register.simple_tag
def topics(*names: str) -> SafeString:
    """An hx-trigger that listens to these topics, to reconnects, and to the page's slow beat."""
    events = [*(name for name in names if name), "live:resync", "live:beat"]
    for event in events:
        if not all(part.isalnum() or part in ":._-" for part in event):
            raise ValueError(f"{event!r} is no topic")
    return SafeString(", ".join(f"{event} from:body" for event in events))
