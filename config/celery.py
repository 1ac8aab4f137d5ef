"""The Celery application. Tasks are thin and live in the rooms' `tasks.py`."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("xinghuo")
# Celery's "current app" is per thread; without a default, threads of a web server would talk to another broker.
app.set_default()
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["memory.sessions", "memory.profiles", "memory.core", "risk.rules", "risk.alerts", "risk.feed"])
