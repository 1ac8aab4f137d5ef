"""WSGI: production HTTP, with MySQL connections that persist in each worker."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()

from guard.access.invalidation import listen  # noqa: E402 - Django must be set up first

listen()
