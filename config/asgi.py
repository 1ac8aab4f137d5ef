"""ASGI: websockets of the live feed, and HTTP where one process serves both (the embedded default)."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
http_application = get_asgi_application()

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402 - Django must be set up first
from channels.sessions import SessionMiddlewareStack  # noqa: E402

from guard.access.invalidation import listen  # noqa: E402
from risk.feed.origin import SameOrigin  # noqa: E402
from risk.feed.routing import websocket_urlpatterns  # noqa: E402

listen()
application = ProtocolTypeRouter(
    {
        "http": http_application,
        # A wrong Origin is refused with 403 before the consumer runs. The consumer looks up whose login it is.
        "websocket": SameOrigin(SessionMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)
