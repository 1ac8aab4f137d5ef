"""Tasks of the feed."""

from __future__ import annotations

from celery import shared_task

from risk.feed.services import publish, tell_alive


@shared_task(name="risk.feed.publish")
def publish_task() -> None:
    publish()
    tell_alive()
