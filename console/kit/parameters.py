"""Parameters that many endpoints share, for the OpenAPI document."""

from drf_spectacular.utils import OpenApiParameter

DRY_RUN = OpenApiParameter("dry_run", bool, description="say what would happen and do nothing")
REASON = OpenApiParameter("reason", str, description="for the audit row")
IF_MATCH = OpenApiParameter("If-Match", str, "header", description="the ETag last seen; 409 when it moved on")
KEY = OpenApiParameter("Idempotency-Key", str, "header", description="the same key acts once, for 24 hours")
TENANT = OpenApiParameter("tenant", str, description="slug")
