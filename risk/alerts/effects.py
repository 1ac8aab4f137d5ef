"""What a change of alerts leaves behind: timeline, audit and feed, written together at its end, one INSERT each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from config.base.trace import current_trace_id
from guard.audit.services import record_all
from risk.alerts.models import AlertAction, AlertOutbox, RiskAlert
from risk.feed.events import tell


class Effects:
    """Gathers rows in the order in which things happened; `write` inserts them, in the transaction of the change.

    What is told of an alert is how it stood at that moment, not how it stands when the rows are written.
    """

    def __init__(self) -> None:
        self._notes: list[AlertAction] = []
        self._records: list[Callable[[], Mapping[str, Any]]] = []
        self._observations: list[Callable[[], object]] = []
        self._events: list[AlertOutbox | None] = []

    @classmethod
    def joined(cls, parts: Sequence[Effects]) -> Effects:
        """What several changes that are written together leave behind, in their order."""
        if len(parts) == 1:
            return parts[0]
        whole = cls()
        for one in parts:
            whole._notes += one._notes
            whole._records += one._records
            whole._observations += one._observations
            whole._events += one._events
        return whole

    def note(self, alert: RiskAlert, action: str, *, text: str = "", trace_id: str = "") -> None:
        """An entry of the timeline that is nobody's act and leaves the status as it is."""
        self._notes.append(
            AlertAction(
                alert=alert,
                action=action,
                from_status=alert.status,
                to_status=alert.status,
                text=text,
                alert_version=alert.version,
                trace_id=trace_id or current_trace_id(),
            )
        )

    def record(self, **entry: Any) -> None:
        """An audit row, as `guard.audit.services.record` takes it."""
        self._records.append(lambda: entry)

    def record_later(self, entry: Callable[[], Mapping[str, Any]]) -> None:
        """An audit row that names the id of a row which is not inserted yet."""
        self._records.append(entry)

    def observe_later(self, observation: Callable[[], object]) -> None:
        """A call of `observe`: an audit row whose loss stops nothing, so it is written by itself, in a savepoint."""
        self._observations.append(observation)

    def tell(self, event: AlertOutbox | None) -> None:
        """An event of the feed (`risk.feed.events`)."""
        self._events.append(event)

    def write(self) -> None:
        """At most three INSERTs, and what the audit needs of the customers' pseudonyms."""
        if self._notes:
            AlertAction.objects.bulk_create(self._notes)
        for observation in self._observations:
            observation()
        if self._records:
            record_all([entry() for entry in self._records])
        tell(self._events)
