"""Every address of the console. Apps own their paths; this file only mounts them."""

from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularAPIView

api: list[URLPattern | URLResolver] = [
    path("", include("console.tenants.api")),
    path("", include("console.audit.api")),
    path("", include("inference.api")),
    path("", include("rollouts.api")),
    path("schema", SpectacularAPIView.as_view(), name="schema"),
]

urlpatterns = [
    path("api/v1/", include((api, "api"))),
    path("", include("console.ui.urls")),
    path("", include("inference.urls")),
    path("", include("rollouts.urls")),
]
