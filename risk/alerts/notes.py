"""Notes on the timeline, with files."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib.auth.models import User
from django.core.files.base import File
from django.db import transaction

from config.base.db import retry_conflicts
from config.base.trace import current_trace_id
from risk.alerts.acting import admit, checked_text, find
from risk.alerts.attaching import checked_files, store
from risk.alerts.models import AlertAction
from risk.feed.events import tell_update


def add_note(*, alert_id: str, officer: User, text: str, files: Sequence[File] = ()) -> AlertAction:
    """A note on the timeline, in any status, with up to attaching.MOST_FILES files; all or none. It changes nothing
    that a disposition rests on: the version stays.

    Errors: FORBIDDEN, ALERT_NOT_FOUND, INVALID_REQUEST for an empty text; with files, those of `checked_files` and
    `store`.
    """
    tenant = admit(officer, "note", alert_id)
    text = checked_text(text, minimum=1)
    kinds = checked_files(files)

    def work() -> AlertAction:
        with transaction.atomic():
            alert = find(tenant, alert_id)
            action = AlertAction.objects.create(
                alert=alert,
                action="note",
                from_status=alert.status,
                to_status=alert.status,
                actor=officer,
                text=text,
                alert_version=alert.version,
                trace_id=current_trace_id(),
            )
            store(alert, action, officer, files, kinds)
            tell_update(alert)
            return action

    return retry_conflicts(work)
