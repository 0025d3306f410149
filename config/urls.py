"""Every address of the console. Apps own their paths; this file only mounts them."""

from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularAPIView

from console.kit.pages import unknown_address

api: list[URLPattern | URLResolver] = [
    path("", include("console.tenants.api")),
    path("", include("console.loadtests.api")),
    path("", include("inference.api")),
    path("", include("rollouts.api")),
    path("schema", SpectacularAPIView.as_view(), name="schema"),
]

handler400 = "console.kit.pages.bad_request"
handler403 = "console.kit.pages.forbidden"
handler404 = "console.kit.pages.not_found"
handler500 = "console.kit.pages.failed"

urlpatterns = [
    path("", include("console.kit.urls")),
    path("api/v1/", include((api, "api"))),
    path("api/<path:rest>", unknown_address),
    path("", include("console.ui.urls")),
    path("", include("console.loadtests.urls")),
    path("", include("inference.urls")),
    path("", include("rollouts.urls")),
]
