"""The console's WebSocket addresses."""

from django.urls import path

from console.live.consumer import LiveConsumer

websocket_urlpatterns = [path("ws/live", LiveConsumer.as_asgi())]
