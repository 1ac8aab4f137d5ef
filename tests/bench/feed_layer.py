"""What the feed is measured beside: as many sockets by Channels alone, `group_send` by channels_redis' pub/sub layer.

`tests.bench.feed_layer:application` under uvicorn; `send_all` from another process.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from channels.generic.websocket import AsyncWebsocketConsumer  # noqa: E402
from channels.layers import channel_layers  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels_redis.pubsub import RedisPubSubChannelLayer  # noqa: E402
from django.conf import settings  # noqa: E402
from django.urls import path  # noqa: E402

GROUP = "alerts"


def layer() -> RedisPubSubChannelLayer:
    return RedisPubSubChannelLayer(hosts=[settings.REDIS_URL], prefix="bench")


channel_layers.set("default", layer())


class Plain(AsyncWebsocketConsumer):
    groups = [GROUP]

    async def connect(self) -> None:
        await self.accept()
        await self.send(text_data='{"type":"hello"}')

    async def feed_alert(self, event: dict[str, Any]) -> None:
        await self.send(text_data=event["text"])


application = ProtocolTypeRouter({"websocket": URLRouter([path("plain/", Plain.as_asgi())])})


def send_all(texts: list[str]) -> None:
    """One after the other, as a publisher does."""

    async def work() -> None:
        one = layer()
        for text in texts:
            await one.group_send(GROUP, {"type": "feed.alert", "text": text})
        await one.flush()

    asyncio.run(work())
