"""Addresses of the pages about rollouts."""

from django.urls import path

from rollouts.views import new, rollout, rollouts, strategies

app_name = "rollouts"

urlpatterns = [
    path("rollouts", rollouts.rollouts, name="rollouts"),
    path("rollouts/new", new.new, name="new"),
    path("rollouts/new/plan", new.plan, name="plan"),
    path("strategies", strategies.strategies, name="strategies"),
    path("strategies/new", strategies.new, name="new-strategy"),
    path("strategies/import", strategies.read, name="import"),
    path("strategies/<int:pk>", strategies.strategy, name="strategy"),
    path("strategies/<int:pk>/edit", strategies.edit, name="edit-strategy"),
    path("strategies/<int:pk>/delete", strategies.delete, name="delete-strategy"),
    path("rollouts/<int:pk>", rollout.rollout, name="rollout"),
    path("rollouts/<int:pk>/<slug:name>", rollout.verb, name="verb"),
]
