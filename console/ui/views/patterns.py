"""`/patterns`: every component in every state. What is not on this page is not used on another."""

from datetime import timedelta

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from console.kit import clock
from console.metrics.source import Indicator, NoData, Point, ProviderError
from console.ui import drawings, signals
from console.ui.access import page
from console.ui.board import Mark
from console.ui.forms import PlainForm
from console.ui.verbs import Dialog, Guard, Typed

WORDS = {
    "ok": "ready",
    "busy": "progressing",
    "warn": "paused",
    "fail": "crashed",
    "idle": "queued",
    "chaos": "injecting",
    "unknown": "no report for 30 s",
}


class PatternForm(PlainForm):
    name = forms.CharField(help_text="Lower-case letters, digits and dashes.")
    size = forms.IntegerField(label="Replicas", max_value=8, help_text="1 to 8 on each node.")
    role = forms.ChoiceField(choices=[("viewer", "viewer"), ("operator", "operator")])


@page()
def patterns(request: HttpRequest) -> HttpResponse:
    now = clock.now()
    wave = [
        Point(float(step), abs((step * 7) % 23 - 11) + 4.0 if step not in (11, 12) else None)
        for step in range(30)
    ]
    ratios = [
        Point(
            float(step),
            None if step in (3, 4) else (0.08 if step in (20, 21) else 0.02 if step == 19 else 0.0),
        )
        for step in range(40)
    ]
    bad_form = PatternForm({"name": "", "size": "90", "role": "viewer"})
    bad_form.is_valid()
    at = now.timestamp()
    context = {
        "marks": [Mark(role, word) for role, word in WORDS.items()],
        "now": now,
        "earlier": now - timedelta(minutes=4),
        "figures": [
            ("Traffic", signals.in_words(Indicator.REQUEST_RATE, 48.2)),
            ("p95 latency", signals.in_words(Indicator.LATENCY_P95, 41.3)),
            (
                "Errors",
                signals.figure(
                    Indicator.ERROR_RATIO, NoData("no requests in the last 60 s", at, "embedded", "")
                ),
            ),
            (
                "p99 latency",
                signals.figure(
                    Indicator.LATENCY_P99, ProviderError("connection refused", at, "prometheus", "")
                ),
            ),
        ],
        "spark": drawings.spark(wave, unit=" /s", span="in 15 min"),
        "strip": drawings.strip(ratios, span="in 30 min"),
        "shares": drawings.shares([("stable", 82, "version 1"), ("canary", 18, "version 2")]),
        "form": PatternForm(initial={"name": "fraud-api", "size": 2}),
        "bad_form": bad_form,
        "dialog": example_dialog(),
        "typed": Typed(),
        "before": {"weight_percent": 10, "replicas": 2},
        "after": {"weight_percent": 50, "replicas": 2},
        "tokens": ("canvas", "surface", "sunken", "text", "muted", "accent", "control"),
    }
    return render(request, "patterns.html", context)


def example_dialog() -> Dialog:
    return Dialog(
        title="Promote version 2 of fraud-api",
        action="Promote to 100 %",
        url="/patterns",
        sentence="Version 2 gets all the requests of fraud-api; 2 steps with their gates are skipped.",
        before="18 %",
        after="100 %",
        affected=("fraud-api answers about 240 requests/s",),
        guards=(
            Guard(True, "p95 41 ms is below the limit 60 ms"),
            Guard(False, "error ratio 3.0 % is above the limit 2.0 %"),
            Guard(None, "drift is not known: no data"),
        ),
        curl="curl -X POST http://localhost:8000/api/v1/rollouts/42/promote",
        revision=17,
        back="/patterns",
    )
