"""Websocket routes."""

from channels.security.websocket import WebsocketDenier
from django.urls import path, re_path

from risk.feed.consumer import AlertFeedConsumer

websocket_urlpatterns = [
    path("ws/alerts/", AlertFeedConsumer.as_asgi()),
    # Any other path is refused with 403 instead of an error in the log.
    re_path(r"", WebsocketDenier.as_asgi()),
]
