"""A version of a rule over past trades, against what officers have decided about the alerts of today's version.

Compared are a version's findings with the live hits that are stored, by (rule, evidence key). What an officer decided
about an alert counts for the findings that were judged with it, with the figures that they have now (decided.py);
findings that came after the disposition are open. An alert is lost only if none of its findings stays, those of other
rules included.
Nothing is written but a row of the audit log. Whoever runs it decides who may.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any

from django.contrib.auth.models import User
from django.db import DatabaseError
from django.db.models import Q

from config.base.clock import business_date, now
from config.base.keys import DEFAULT_TENANT
from guard.access.models import StaffMember
from guard.access.roles import RISK_OFFICER
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import observe
from memory.core.models import CoreChange
from memory.core.selectors import customers_facts, known_customer_ids
from risk.alerts.damage import is_damaged
from risk.alerts.models import AlertStatus, HitState, RiskAlert, RiskAlertHit
from risk.alerts.scoring import band
from risk.conduct.trying import advisors_of_past, conduct_findings
from risk.rules.decided import judged_with
from risk.rules.engine import ADVISOR_MODULES, Rule
from risk.rules.facts import Facts
from risk.rules.hit import Hit
from risk.rules.models import RiskRule
from risk.rules.numbers import ratio
from risk.rules.ruling import rules_on_trial, takers_of

logger = logging.getLogger(__name__)

CHUNK = 25  # customers read at once
LISTED = 1000  # alerts that a report names, of each kind
SAMPLED = 20  # new hits that it names
DAYS = 90  # over which alerts a day are counted
AIM = 25  # alerts a day and officer that a version should not go beyond
CONFIRMED, FALSE_POSITIVE, CLOSED, OPEN = "confirmed", "false_positive", "closed", "open"
_GONE = (HitState.SUPERSEDED, HitState.WITHDRAWN, HitState.CANCELLED)
Progress = Callable[[int, int], None]


@dataclass
class _Alert:
    """What becomes of one alert: the findings judged with it, as they live now. lost: their row ids."""

    disposition: str
    code: str
    score: int
    kept: int = 0
    lost: list[int] = field(default_factory=list)


@dataclass
class Report:
    """What a version would change. hits: disposition -> kept and lost. new: findings that nobody has yet.

    kept_by_others: alerts that lose all findings of these rules and keep some of others. rescored, other_band: hits
    kept with another score, or in another band. waiting: customers whose newest facts no scan has judged yet, so that
    what is stored may be old. failed: customers or advisors that could not be evaluated.
    left_out: stored rows that cannot be read, whose findings are not compared.
    alerts_a_day: of these rules, by customer and business day over the last DAYS days, now and with the version.
    """

    rule_id: str
    version: int
    figures: dict[str, Any]
    judged: int = 0
    failed: int = 0
    left_out: int = 0
    waiting: int = 0
    hits: dict[str, dict[str, int]] = field(
        default_factory=lambda: {name: {"kept": 0, "lost": 0} for name in (CONFIRMED, FALSE_POSITIVE, CLOSED, OPEN)}
    )
    new: int = 0
    new_sample: list[dict[str, Any]] = field(default_factory=list)
    rescored: int = 0
    other_band: int = 0
    confirmed: int = 0
    confirmed_lost: list[dict[str, Any]] = field(default_factory=list)
    false_positives: int = 0
    false_saved: list[dict[str, Any]] = field(default_factory=list)
    kept_by_others: int = 0
    days: int = DAYS
    anchors_now: int = 0
    anchors_then: int = 0
    officers: int = 0
    lost_count: int = 0
    saved_count: int = 0

    @property
    def loses_confirmed(self) -> bool:
        return self.lost_count > 0

    def precision(self, *, after: bool) -> str | None:
        """Confirmed among those decided as confirmed or false, six decimals; None where there are none."""
        good = self.confirmed - (self.lost_count if after else 0)
        bad = self.false_positives - (self.saved_count if after else 0)
        return ratio(Fraction(good, good + bad)) if good + bad else None

    def as_json(self) -> dict[str, Any]:
        a_day = {"now": Fraction(self.anchors_now, self.days), "then": Fraction(self.anchors_then, self.days)}
        officers = max(self.officers, 1)
        return {
            "rule": self.rule_id,
            "version": self.version,
            "figures": self.figures,
            "judged": self.judged,
            "failed": self.failed,
            "left_out": self.left_out,
            "waiting": self.waiting,
            "hits": self.hits,
            "confirmed": {
                "alerts": self.confirmed,
                "kept": self.confirmed - self.lost_count,
                "lost": self.lost_count,
                "listed": self.confirmed_lost,
            },
            "false_positive": {
                "alerts": self.false_positives,
                "kept": self.false_positives - self.saved_count,
                "saved": self.saved_count,
                "listed": self.false_saved,
            },
            "kept_by_others": self.kept_by_others,
            "new": {"hits": self.new, "sample": self.new_sample},
            "rescored": self.rescored,
            "other_band": self.other_band,
            "precision": {"before": self.precision(after=False), "after": self.precision(after=True)},
            "alerts_a_day": {
                "days": self.days,
                **{name: ratio(value) for name, value in a_day.items()},
                "officers": self.officers,
                "an_officer": ratio(a_day["then"] / officers),
                "aim": AIM,
                "over_aim": a_day["then"] / officers > AIM,
            },
        }


def backtest(
    *,
    row: RiskRule,
    since: datetime | None = None,
    until: datetime | None = None,
    by: User | str = "backtest",
    progress: Progress | None = None,
) -> Report:
    """Runs a version over the past of its tenant.

    row: stored or not; its figures are complete or get the rule's own. since, until: findings of `[since, until)`,
    by the time of their trade; all facts before count as history. progress: done, of how many.
    Cost: a reading of everything, 7 to 9 queries for CHUNK customers; memory grows with the alerts alone.
    Errors: INVALID_REQUEST for figures that cannot be. One of a customer's evaluation is counted, not raised.
    """
    rules = rules_on_trial(row=row)
    report = Report(row.rule_id, row.version, dict(row.params))
    report.waiting = CoreChange.objects.filter(tenant=row.tenant).values("customer_id").distinct().count()
    report.officers = _officers(row.tenant)
    run = _Run(row.tenant, row.rule_id, report, since, until)
    source = _advisors if row.rule_id in ADVISOR_MODULES else _customers
    for done, total, names, found in source(row.tenant, rules, report):
        run.compare(names, [hit for hit in found if _within(hit.occurred_at, since, until)])
        if progress:
            progress(done, total)
    run.weigh()
    _tell(row, report, by)
    return report


def _within(at: datetime, since: datetime | None, until: datetime | None) -> bool:
    return (since is None or at >= since) and (until is None or at < until)


Batch = tuple[int, int, Sequence[str], list[Hit]]


def _customers(tenant: str, rules: Sequence[Rule], report: Report) -> Iterator[Batch]:
    ids = known_customer_ids(tenant=tenant)
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        facts = customers_facts(tenant=tenant, customer_ids=chunk)
        judged, hits = [], []
        for customer_id in chunk:
            try:
                built = Facts(facts[customer_id])
                found = [hit for rule in rules for hit in rule.evaluate(built, rule.params, rule.version)]
            except Exception:
                logger.exception("backtest of one customer failed")
                report.failed += 1
            else:
                judged.append(customer_id)
                hits.extend(found)
        yield start + len(chunk), len(ids), judged, hits


def _advisors(tenant: str, rules: Sequence[Rule], report: Report) -> Iterator[Batch]:
    ids = advisors_of_past(tenant=tenant)
    for index, advisor_id in enumerate(ids, start=1):
        try:
            hits = list(conduct_findings(tenant=tenant, advisor_id=advisor_id, rules=rules))
        except DatabaseError:
            raise
        except Exception:
            logger.exception("backtest of one advisor failed")
            report.failed += 1
        else:
            yield index, len(ids), [advisor_id], hits


class _Run:
    """Compares batch by batch, and remembers of each decided alert what is left of it."""

    def __init__(
        self, tenant: str, rule_id: str, report: Report, since: datetime | None, until: datetime | None
    ) -> None:
        self._tenant, self._report = tenant, report
        self._rules = {rule_id, *takers_of(rule_id)}
        self._subject = "advisor_id" if rule_id in ADVISOR_MODULES else "customer_id"
        self._since, self._until = since, until
        self._alerts: dict[str, _Alert] = {}
        self._last_day = business_date(min(until, now()) if until else now())
        # Of one batch: all of a customer's are in it, so none is counted twice and none is remembered for long.
        self._seen: set[tuple[str, str, str, date]] = set()

    def compare(self, names: Sequence[str], hits: Iterable[Hit]) -> None:
        """names: the customers (advisors) that were judged. hits: all that the version finds of them."""
        self._report.judged += len(names)
        found = {(hit.rule_id, hit.evidence_key): hit for hit in hits}
        stored = []
        for row in self._stored(names):
            if is_damaged(row) or is_damaged(row.alert):
                self._report.left_out += 1
                found.pop((row.rule_id, row.evidence_key), None)
            else:
                stored.append(row)
        judged = judged_with(stored)
        for row in stored:
            hit = found.pop((row.rule_id, row.evidence_key), None)
            alert = judged.get(row.pk)
            disposition = _disposition(alert)
            self._report.hits[disposition]["kept" if hit else "lost"] += 1
            if hit is not None and hit.score != row.score:
                self._report.rescored += 1
                self._report.other_band += band(hit.score) != band(row.score)
            if alert is not None and disposition in (CONFIRMED, FALSE_POSITIVE):
                self._note(row, alert, disposition, hit)
            self._anchor("anchors_now", row)
            if hit is not None:
                self._anchor("anchors_then", hit)
        for hit in found.values():
            self._report.new += 1
            self._anchor("anchors_then", hit)
            if len(self._report.new_sample) < SAMPLED:
                self._report.new_sample.append(
                    {
                        "rule": hit.rule_id,
                        "trade_id": hit.trade_id,
                        "occurred_on": business_date(hit.occurred_at).isoformat(),
                        "score": hit.score,
                        "subtypes": list(hit.subtypes),
                    }
                )
        self._seen.clear()

    def _anchor(self, count: str, of: Any) -> None:
        """One alert a customer (advisor), rule and business day, as the anchors of alerts have it."""
        day = business_date(of.occurred_at)
        key = (count, getattr(of, self._subject), of.rule_id, day)
        if self._last_day - timedelta(days=DAYS) < day <= self._last_day and key not in self._seen:
            self._seen.add(key)
            setattr(self._report, count, getattr(self._report, count) + 1)

    def _stored(self, names: Sequence[str]) -> Iterable[RiskAlertHit]:
        rows = RiskAlertHit.objects.filter(tenant=self._tenant, rule_id__in=self._rules).exclude(state__in=_GONE)
        rows = rows.filter(**{f"{self._subject}__in": list(names)})
        if self._since is not None:
            rows = rows.filter(occurred_at__gte=self._since)
        if self._until is not None:
            rows = rows.filter(occurred_at__lt=self._until)
        return rows.select_related("alert").defer("figures", "alert__disposition_text").order_by("id")

    def _note(self, row: RiskAlertHit, alert: RiskAlert, disposition: str, hit: Hit | None) -> None:
        of = self._alerts.setdefault(alert.pk, _Alert(disposition, alert.disposition_code, alert.score))
        if hit is not None:
            of.kept += 1
        else:
            of.lost.append(row.pk)

    def weigh(self) -> None:
        """At the end: which decided alerts would not be there, and which would stay for other findings' sake."""
        gone = {alert_id: of for alert_id, of in self._alerts.items() if not of.kept}
        held = self._held_by_others(gone)
        report = self._report
        kinds = Counter(of.disposition for of in self._alerts.values())
        report.confirmed, report.false_positives = kinds[CONFIRMED], kinds[FALSE_POSITIVE]
        for alert_id, of in sorted(gone.items()):
            if alert_id in held:
                report.kept_by_others += 1
                continue
            told = {"alert_id": alert_id, "code": of.code, "score": of.score, "hits": len(of.lost)}
            if of.disposition == CONFIRMED:
                report.lost_count += 1
                listed = report.confirmed_lost
            else:
                report.saved_count += 1
                listed = report.false_saved
            if len(listed) < LISTED:
                listed.append(told)

    def _held_by_others(self, gone: Mapping[str, _Alert]) -> set[str]:
        """Alerts of which judged findings live that are not among the lost: of other rules, or of another time."""
        held: set[str] = set()
        ids = sorted(gone)
        for start in range(0, len(ids), 200):
            chunk = ids[start : start + 200]
            # A finding's revision may stand in the follow-up of the alert that it was judged with.
            rows = RiskAlertHit.objects.filter(
                Q(alert_id__in=chunk) | Q(alert__parent_id__in=chunk), tenant=self._tenant, state=HitState.LIVE
            )
            lost = {pk for alert_id in chunk for pk in gone[alert_id].lost}
            live = [row for row in rows.select_related("alert").defer("figures").order_by() if row.pk not in lost]
            held.update(alert.pk for alert in judged_with(live).values())
        return held


def _disposition(alert: RiskAlert | None) -> str:
    """What was decided about a finding with its alert. Confirmed and closed since is confirmed."""
    if alert is None:
        return OPEN
    if alert.status == AlertStatus.CONFIRMED:
        return CONFIRMED
    if alert.status == AlertStatus.FALSE_POSITIVE:
        return FALSE_POSITIVE
    if alert.status == AlertStatus.CLOSED:
        return CONFIRMED if alert.confirmed_at is not None else CLOSED
    return OPEN


def _officers(tenant: str) -> int:
    """Active officers of the tenant."""
    officers = User.objects.filter(is_active=True, groups__name=RISK_OFFICER).distinct()
    there = StaffMember.objects.filter(tenant=tenant).values("user_id")
    if tenant != DEFAULT_TENANT:
        return officers.filter(pk__in=there).count()
    return officers.exclude(pk__in=StaffMember.objects.exclude(tenant=tenant).values("user_id")).count()


def _tell(row: RiskRule, report: Report, by: User | str) -> None:
    observe(
        tenant=row.tenant,
        event_type=EventType.RULE_SCAN,
        decision=Decision.PARTIAL if report.failed else Decision.COMPLETED,
        actor_type=ActorType.STAFF if isinstance(by, User) else ActorType.SYSTEM,
        actor_id=by.get_username()[:64] if isinstance(by, User) else by,
        object_type="risk_rule",
        object_id=f"{row.rule_id}@{row.version}",
        code=row.rule_id,
        input_summary={
            "action": "backtest",
            "judged": report.judged,
            "failed": report.failed,
            "confirmed_lost": report.lost_count,
            "false_positives_saved": report.saved_count,
            "new_hits": report.new,
        },
    )
