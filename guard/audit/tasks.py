"""Tasks of the audit, on the `publish` queue: short, and never behind a long job."""

from __future__ import annotations

from celery import shared_task

from guard.audit.anchors import append_when_due
from guard.audit.sealing import seal_waiting
from guard.audit.services import tell_losses


@shared_task(name="guard.audit.seal")
def seal() -> int:
    """Each second: seals what was written since, appends an anchor where one is due, tells of lost observations."""
    done = seal_waiting()
    append_when_due()
    tell_losses()
    return done.rows
