"""Addresses of the pages about services, versions, replicas and nodes."""

from django.urls import path

from inference.views import nodes, playground, service, services, versions

app_name = "inference"

urlpatterns = [
    path("services", services.services, name="services"),
    path("services/-/new", versions.new_service, name="new_service"),
    path("services/<str:name>", service.service, name="service"),
    path("services/<str:name>/try", playground.try_it, name="try"),
    path("services/<str:name>/versions/new", versions.new_version, name="new_version"),
    path("services/<str:name>/versions/<int:number>", versions.version, name="version"),
    path("replicas/<int:pk>/restart", service.restart, name="restart"),
    path("nodes", nodes.nodes, name="nodes"),
    path("nodes/<str:name>", nodes.node, name="node"),
]
