"""Addresses of the pages about load tests."""

from django.urls import path

from console.loadtests.views import loadtest, loadtests, new, upload

app_name = "loadtests"

urlpatterns = [
    path("loadtests", loadtests.loadtests, name="loadtests"),
    path("loadtests/new", new.new, name="new"),
    path("loadtests/new/plan", new.plan, name="plan"),
    path("loadtests/upload", upload.upload, name="upload"),
    path("loadtests/<int:pk>", loadtest.loadtest, name="loadtest"),
    path("loadtests/<int:pk>/cancel", loadtest.cancel, name="cancel"),
]
