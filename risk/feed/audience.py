"""Whom an event calls. `notify_role` of an alert names the roles: their sockets get the `alert` frame, which rings.

Everybody else who may see alerts (a manager sees all) gets an `update` of the same number instead, with how the alert
stands now: their lists are as true as anybody's, and no number is missing. See docs/decisions/0031-who-is-called.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from config.base.fields import canonical_json
from risk.feed.events import VOID
from risk.feed.wire import Prepared, prepare

Roles = frozenset[str]


class Entry:
    """One number of a tenant's feed, prepared once for those whom it calls and once for all others."""

    __slots__ = ("_loud", "_quiet", "alert_id", "roles", "seq")

    def __init__(self, body: dict[str, Any]) -> None:
        """body: a frame with its seq. Errors: KeyError, TypeError where it is none."""
        self.seq: int = body["seq"]
        self.roles: Roles | None = None  # None: it calls nobody and is for all
        self.alert_id = ""
        self._quiet: Prepared | None = None
        if body["type"] == "alert":
            self.roles = frozenset(body["alert"]["notify_role"])
            self.alert_id = body["alert"]["alert_id"]
        self._loud = prepare(canonical_json(body))

    def frame_for(self, roles: Roles) -> Prepared | None:
        """None: how the alert stands has to be looked up first (`settle`)."""
        return self._loud if self.calls(roles) else self._quiet

    def calls(self, roles: Roles) -> bool:
        return self.roles is None or not self.roles.isdisjoint(roles)

    def settle(self, stand: dict[str, Any] | None) -> None:
        """stand: the fields of an update; None where the alert is not there any more."""
        body = {"type": "update", **stand} if stand else VOID
        self._quiet = prepare(canonical_json({**body, "seq": self.seq}))

    @property
    def size(self) -> int:
        return len(self._loud.wire) * 2


def open_for(entries: Iterable[Entry], roles: Roles) -> list[Entry]:
    """Those that have to be settled before `roles` can be told."""
    return [entry for entry in entries if entry.frame_for(roles) is None]
