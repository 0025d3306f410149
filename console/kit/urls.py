from django.urls import path

from console.kit import health

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.exposition, name="metrics"),
]
