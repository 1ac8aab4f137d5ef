"""WSGI: production HTTP, with MySQL connections that persist in each worker."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django_application = get_wsgi_application()

from django.conf import settings  # noqa: E402 - Django must be set up first

from config.chunked import ChunkedBodies  # noqa: E402 - Django must be set up first
from guard.access.invalidation import listen  # noqa: E402 - Django must be set up first

application = ChunkedBodies(django_application, settings.MAX_BODY_BYTES)
listen()
