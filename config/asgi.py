"""HTTP and WebSocket of the console."""

import os

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
http = get_asgi_application()

from django.conf import settings  # noqa: E402  the settings module is named above

from console.kit.asgi import BodyGuard  # noqa: E402  the app registry must be ready first
from console.live.routing import websocket_urlpatterns  # noqa: E402  the app registry must be ready first

application = ProtocolTypeRouter(
    {
        "http": BodyGuard(http, body_bytes=settings.MAX_BODY_BYTES, upload_bytes=settings.MAX_UPLOAD_BYTES),
        "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)
