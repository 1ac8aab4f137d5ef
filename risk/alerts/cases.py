"""The stored cases of one customer or advisor, as far as new findings can meet them, and a change of them as a whole.

Read once, changed in memory, written in one short transaction that first looks whether what was read still holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import IntegrityError
from django.db.models import Q, QuerySet

from config.base.clock import now
from config.base.db import insert_all
from risk.alerts.damage import refuse_damaged
from risk.alerts.deadlines import limits_of
from risk.alerts.effects import Effects
from risk.alerts.levels import CONFIRMED_WITHIN
from risk.alerts.models import HitState, RiskAlert, RiskAlertHit
from risk.alerts.tally import Tally
from risk.calendar.selectors import WorkCalendar, work_calendar

# What officers and the sweep may change of an alert beside us; with `version` it tells whether they did.
_WATCHED = (
    "version", "status", "score", "escalation_level", "merge_slot", "snoozed_until", "claim_due_at", "dispose_due_at",
    "quiet_until", "assignee_id",
)  # fmt: skip


class Changed(IntegrityError):
    """Somebody else wrote first: read again and start over."""


def cases_query(
    hits: QuerySet[RiskAlertHit],
    *,
    anchors: Collection[str],
    evidence: Collection[str],
    slots: Collection[str],
    live: Q,
) -> QuerySet[RiskAlertHit]:
    """Of one subject's hits those that decide where others go, with their alerts; the oldest first.

    live: which of its live hits to read. anchors, evidence, slots: of the new findings.
    """
    at = now()
    wanted = (
        live
        | Q(anchor__in=[*anchors, *(f"{anchor}:f" for anchor in anchors)])
        | Q(evidence_key__in=evidence)
        | Q(alert__merge_slot__in=slots)
        | Q(alert__quiet_until__gt=at)
        | Q(alert__confirmed_at__gte=at - CONFIRMED_WITHIN)
    )
    return hits.filter(wanted).select_related("alert").order_by("detected_at", "id")


def holders_of(
    tenant: str, keys: Collection[tuple[str, str]], but: QuerySet[RiskAlertHit] | None = None
) -> QuerySet[RiskAlertHit]:
    """The hits of whomever, live or not, under these rules and evidence keys. but: the subject whose own are known."""
    rules, evidence = {rule for rule, _key in keys}, {key for _rule, key in keys}
    rows = RiskAlertHit.objects.filter(tenant=tenant, rule_id__in=rules, evidence_key__in=evidence)
    return rows if but is None else rows.exclude(pk__in=but.filter(evidence_key__in=evidence).values("pk"))


class LazyCalendar:
    """A tenant's calendar, read when the first limit needs it: one query a change."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._read: WorkCalendar | None = None

    def __call__(self) -> WorkCalendar:
        if self._read is None:
            self._read = work_calendar(tenant=self._tenant)
        return self._read


class Cases:
    """See above. tenant; at: the instant of the change. calendar: shared by changes that are written together."""

    def __init__(self, tenant: str, rows: Iterable[RiskAlertHit], calendar: LazyCalendar | None = None) -> None:
        self.tenant = tenant
        self.at = now()
        self.effects = Effects()
        self._alerts: dict[str, RiskAlert] = {}
        self._anchors: dict[str, RiskAlertHit] = {}
        self._live: dict[str, dict[int, RiskAlertHit]] = defaultdict(dict)  # by alert, in order; by the row object's id
        self._revisions: dict[tuple[str, str], int] = {}
        self._strangers: set[str] = set()  # alerts of others
        self._elsewhere: dict[tuple[str, str], RiskAlertHit] = {}  # live hits there, under keys of the new findings
        self.taken_from: set[str] = set()  # customers who lost a live hit to this change
        self._quiet: dict[tuple[str, str], RiskAlertHit] = {}
        self._tallies: dict[str, Tally] = {}
        for row in rows:
            refuse_damaged(row)
            # One object an alert, whichever of its hits it was read with.
            row.alert = self._alerts.setdefault(row.alert_id, row.alert)
            if row.anchor is not None:
                self._anchors[row.anchor] = row
            if row.state == HitState.LIVE:
                self._live[row.alert_id][id(row)] = row
            self._count(row)
            self._note_quiet(row)
        self._slots = {alert.merge_slot: alert for alert in self._alerts.values() if alert.merge_slot is not None}
        self._was: dict[str, tuple[Any, ...]] = {}  # of the alerts touched: as they were read
        self._dirty: dict[str, set[str]] = defaultdict(set)
        self._opened: dict[str, RiskAlert] = {}
        self._found: list[RiskAlertHit] = []
        self._retired: dict[HitState, list[int]] = defaultdict(list)
        self._calendar = calendar or LazyCalendar(tenant)

    def know(self, alerts: Iterable[RiskAlert]) -> None:
        """Further alerts of the subject, that may have no hits."""
        for alert in alerts:
            known = self._alerts.setdefault(alert.alert_id, alert)
            if known.merge_slot is not None:
                self._slots[known.merge_slot] = known

    def _count(self, row: RiskAlertHit) -> None:
        key = (row.rule_id, row.evidence_key)
        self._revisions[key] = max(self._revisions.get(key, 0), row.revision)

    def count_revisions(self, rows: Iterable[RiskAlertHit]) -> None:
        """What others have, or had, under the keys of the new findings: revisions are numbered after it."""
        for row in rows:
            self._count(row)

    def meet(self, rows: Iterable[RiskAlertHit]) -> None:
        """As `count_revisions`; and what of it is live may be taken (`take`). Costs 1 query where there is such."""
        rows = list(rows)
        self.count_revisions(rows)
        held = {row.pk: (row.rule_id, row.evidence_key) for row in rows if row.state == HitState.LIVE}
        if not held:
            return
        alert_ids = {row.alert_id for row in rows if row.pk in held}
        beside = RiskAlertHit.objects.filter(tenant=self.tenant, alert__in=alert_ids, state=HitState.LIVE)
        for row in beside.select_related("alert").order_by("detected_at", "id"):
            row.alert = self._alerts.setdefault(row.alert_id, row.alert)
            self._strangers.add(row.alert_id)
            self._live[row.alert_id][id(row)] = row
            if row.pk in held:
                self._elsewhere[held[row.pk]] = row

    def take(self, rule_id: str, evidence_key: str, trade_id: str) -> RiskAlertHit | None:
        """The live hit that somebody else has under the key of a new finding, for the caller to retire.

        Where it speaks of the same trade its customer is to be evaluated again, for only one of the two can be right.
        Of another trade the key is shared by mistake, and who was evaluated last has it: no evaluation would end that.
        """
        row = self._elsewhere.pop((rule_id, evidence_key), None)
        if row is not None and row.customer_id and row.trade_id == trade_id:
            self.taken_from.add(row.customer_id)
        return row

    def _note_quiet(self, row: RiskAlertHit) -> None:
        alert = row.alert
        if row.alert_version is None or row.state == HitState.SUPERSEDED:
            return
        if alert.quiet_until is None or alert.quiet_until <= self.at:
            return
        best = self._quiet.get((row.rule_id, row.product_id))
        if best is None or _newest_disposed(row) > _newest_disposed(best):
            self._quiet[(row.rule_id, row.product_id)] = row

    # --- questions ---

    def live(self) -> list[RiskAlertHit]:
        """The subject's live hits that were read, or found since."""
        return [
            row for alert_id, rows in self._live.items() if alert_id not in self._strangers for row in rows.values()
        ]

    def tally_of(self, alert: RiskAlert) -> Tally:
        """What an open alert's live hits come to. Counted once, and then kept up to date hit by hit."""
        tally = self._tallies.get(alert.alert_id)
        if tally is None:
            tally = self._tallies[alert.alert_id] = Tally(self._live[alert.alert_id].values())
        return tally

    def holder(self, anchor: str) -> RiskAlertHit | None:
        return self._anchors.get(anchor)

    def in_slot(self, slot: str) -> RiskAlert | None:
        return self._slots.get(slot)

    def quieted_by(self, rule_id: str, product_id: str) -> RiskAlert | None:
        """The alert of the newest disposition that asked for quiet about this rule and product."""
        row = self._quiet.get((rule_id, product_id))
        return row.alert if row is not None else None

    def next_revision(self, rule_id: str, evidence_key: str) -> int:
        return self._revisions.get((rule_id, evidence_key), 0) + 1

    def confirmed_rules(self, alert: RiskAlert) -> set[str]:
        """The rules of the customer's other alerts that were confirmed lately."""
        if not alert.customer_id:
            return set()
        since = self.at - CONFIRMED_WITHIN
        return {
            rule
            for other in self._alerts.values()
            if other is not alert
            and other.alert_id not in self._strangers
            and other.confirmed_at is not None
            and other.confirmed_at >= since
            for rule in other.rule_ids
        }

    def calendar_for(self, alert: RiskAlert) -> WorkCalendar:
        """The holidays, where the alert's limits need them. One query a change."""
        if limits_of(score=alert.score, alert_type=alert.alert_type).wall_clock:
            return WorkCalendar()
        return self._calendar()

    # --- changes, in memory ---

    def touch(self, alert_id: str) -> RiskAlert:
        """An alert that the change rests on: it is locked, and must be as it was read, when that is written."""
        alert = self._alerts[alert_id]
        refuse_damaged(alert)
        if alert.alert_id not in self._opened:
            self._was.setdefault(alert_id, tuple(getattr(alert, name) for name in _WATCHED))
        return alert

    def save(self, alert: RiskAlert, columns: Iterable[str]) -> None:
        if alert.alert_id not in self._opened:
            self._dirty[alert.alert_id].update(columns)

    def free_slot(self, alert: RiskAlert) -> None:
        """No further hit joins it."""
        if alert.merge_slot is not None:
            self._slots.pop(alert.merge_slot, None)
        alert.merge_slot = None
        self.save(alert, ["merge_slot"])

    def open(self, alert: RiskAlert) -> None:
        self._opened[alert.alert_id] = alert
        self._alerts[alert.alert_id] = alert
        if alert.merge_slot is not None:
            self._slots[alert.merge_slot] = alert

    @property
    def retired(self) -> set[int]:
        """The hits that were live, and go."""
        return {pk for keys in self._retired.values() for pk in keys}

    def retire(self, row: RiskAlertHit, to: HitState) -> None:
        """Takes a hit out of the living."""
        del self._live[row.alert_id][id(row)]
        if row.alert_id in self._tallies:
            self._tallies[row.alert_id].take(row)
        self._retired[to].append(row.pk)
        row.state, row.live_key = to, None

    def add(self, row: RiskAlertHit) -> None:
        """A new live hit."""
        self._found.append(row)
        self._live[row.alert_id][id(row)] = row
        if row.alert_id in self._tallies:
            self._tallies[row.alert_id].add(row)
        self._count(row)
        if row.anchor is not None:
            self._anchors[row.anchor] = row

    # --- the change, written ---

    def write(self) -> None:
        """`write_all` of this one."""
        write_all([self])

    def go_on(self) -> None:
        """Call it after the commit: what was written is what is stored, and the next change begins from it.

        That change looks whether it still holds, like the first one. Nothing is read again, so that a customer with
        very many findings is read once and not once for each SLICE of them.
        """
        self.at = now()
        self.effects = Effects()
        self._was.clear()
        self._dirty.clear()
        self._opened.clear()
        self._found.clear()
        self._retired.clear()
        self.taken_from = set()


def write_all(changes: Sequence[Cases]) -> None:
    """Writes changes of several subjects. Call it inside a transaction.

    Errors: Changed, IntegrityError: somebody else wrote first, and nothing of it holds.
    Cost: 1 query for the alerts touched, 1 for each of them that changed, 1 for each way in which hits went, 1 INSERT
    for alerts, 1 for hits, and those of `Effects`, however many subjects there are.
    """
    was = {alert_id: columns for one in changes for alert_id, columns in one._was.items()}
    if was:
        locked = RiskAlert.objects.select_for_update().filter(pk__in=was).order_by("pk")
        if {row[0]: row[1:] for row in locked.values_list("pk", *_WATCHED)} != was:
            raise Changed("an alert changed meanwhile; read it again")
    retired: dict[HitState, list[int]] = defaultdict(list)
    for one in changes:
        for state, keys in one._retired.items():
            retired[state] += keys
    for state, keys in retired.items():
        gone = RiskAlertHit.objects.filter(pk__in=keys, state=HitState.LIVE).update(state=state, live_key=None)
        if gone != len(keys):
            raise Changed("another scanner has revised a finding; read it again")
    for one in changes:
        for alert_id, columns in one._dirty.items():
            one._alerts[alert_id].save(update_fields=columns)
    insert_all([alert for one in changes for alert in one._opened.values()])
    insert_all([row for one in changes for row in one._found])
    Effects.joined([one.effects for one in changes]).write()


def _newest_disposed(row: RiskAlertHit) -> tuple[bool, datetime | None, int]:
    disposed = row.alert.disposed_at
    return (disposed is not None, disposed, row.pk)
