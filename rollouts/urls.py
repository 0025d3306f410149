"""Addresses of the pages about rollouts."""

from django.urls import path

from rollouts.views import new, rollout, rollouts

app_name = "rollouts"

urlpatterns = [
    path("rollouts", rollouts.rollouts, name="rollouts"),
    path("rollouts/new", new.new, name="new"),
    path("rollouts/new/plan", new.plan, name="plan"),
    path("rollouts/<int:pk>", rollout.rollout, name="rollout"),
    path("rollouts/<int:pk>/<slug:name>", rollout.verb, name="verb"),
]
