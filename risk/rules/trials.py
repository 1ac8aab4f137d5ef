"""Backtests that people ask for on a version's page: asked for here, run by the worker, kept with what they found."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Q

from config.base.clock import now
from config.base.errors import DomainError
from guard.access.people import admit_staff
from guard.access.roles import may
from risk.rules.backtest import backtest
from risk.rules.models import Backtest, BacktestState, RiskRule
from risk.rules.versions import ACTIVATE, CHANGE, check_rule, complete, find, in_force_of, refuse_taken

logger = logging.getLogger(__name__)

SILENT = timedelta(minutes=2)  # a run of which nothing was heard for so long has died
ATTEMPTS = 3
MIN_YEAR, MAX_YEAR = 1970, 9998  # of the days of a period: no instant beyond can be calculated with
_TELL_SECONDS = 2.0  # between two words of how far it is


def on_trial(*, tenant: str, rule_id: str, version: int | None, params: Mapping[str, Any]) -> RiskRule:
    """A version for a backtest; not stored where `params` are put in place of some of its figures.

    version: None is what is in force, or was last. Errors: RULE_NOT_FOUND, INVALID_REQUEST.
    """
    rows = list(RiskRule.objects.filter(tenant=tenant, rule_id=check_rule(rule_id)))
    now_in_force = in_force_of(rows, rule_id)
    number = now_in_force.version if version is None else version
    row = next((one for one in rows if one.version == number), None)
    if row is not None and not params:
        return row
    if row is not None:
        figures = complete(rule_id, row.params)
    elif version is None:
        if now_in_force.damaged:
            raise DomainError("INVALID_REQUEST", f"the last figures of {rule_id} cannot be read; name a --version")
        figures = now_in_force.figures
    elif version == 1:
        figures = complete(rule_id, {})
    else:
        raise DomainError("RULE_NOT_FOUND", f"{rule_id} has no version {version}")
    refuse_taken(rule_id, params)
    return RiskRule(
        tenant=tenant, rule_id=rule_id, version=number or 1, params=complete(rule_id, {**figures, **params})
    )


def ask(*, tenant: str, pk: int, by: User, since: datetime | None = None, until: datetime | None = None) -> Backtest:
    """Puts a backtest of a version as it is in line. One that waits or runs already is the answer.

    by: somebody who may change or activate versions. Errors: FORBIDDEN (403), RULE_NOT_FOUND (404), INVALID_REQUEST.
    """
    row = find(tenant=tenant, pk=pk)
    permission = ACTIVATE if may(by, ACTIVATE) else CHANGE
    admit_staff(
        by, permission, action="backtest", object_type="risk_rule", object_id=row.rule_id, tenant=tenant, by_role=True
    )
    if since is not None and until is not None and until <= since:
        raise DomainError("INVALID_REQUEST", "the last day lies before the first", fields={"last": "before the first"})
    same = Backtest.objects.filter(rule=row, revision=row.revision, since=since, until=until)
    there = same.filter(state__in=(BacktestState.WAITING, BacktestState.RUNNING)).first()
    if there is not None:
        return there
    return Backtest.objects.create(
        tenant=tenant, rule=row, revision=row.revision, since=since, until=until, asked_by=by
    )


def run_waiting() -> int:
    """Runs what waits, one after the other, and takes up again what died on the way; how many were run.

    One at a time, whatever waits: the other process of the queue is the scans'. Claimed by a conditional update: two
    workers never run the same. One query when nothing waits.
    """
    done = 0
    while True:
        silent = Q(state=BacktestState.RUNNING, beat_at__lt=now() - SILENT)
        waits = Backtest.objects.filter(Q(state=BacktestState.WAITING) | silent).order_by("id")
        one = waits.select_related("rule", "asked_by").first()
        if one is None or _another_runs():
            return done
        claimed = waits.filter(pk=one.pk, attempts=one.attempts, state=one.state)
        if one.attempts >= ATTEMPTS:
            claimed.update(state=BacktestState.FAILED, finished_at=now())
        elif claimed.update(state=BacktestState.RUNNING, beat_at=now(), attempts=F("attempts") + 1):
            one.attempts += 1
            _run(one)
            done += 1


def _another_runs() -> bool:
    return Backtest.objects.filter(state=BacktestState.RUNNING, beat_at__gte=now() - SILENT).exists()


def _run(one: Backtest) -> None:
    ours = Backtest.objects.filter(pk=one.pk, state=BacktestState.RUNNING, attempts=one.attempts)
    if one.rule.revision != one.revision:
        # The figures that were asked about are not there any more: an answer about others would be a wrong one.
        ours.update(state=BacktestState.FAILED, finished_at=now())
        return
    told = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told >= _TELL_SECONDS:
            told = time.monotonic()
            ours.update(done=done, total=total, beat_at=now())

    try:
        report = backtest(row=one.rule, since=one.since, until=one.until, by=one.asked_by, progress=progress)
    except DomainError:
        logger.exception("a backtest cannot be run")
        ours.update(state=BacktestState.FAILED, finished_at=now())
    else:
        ours.update(
            state=BacktestState.DONE, report=report.as_json(), finished_at=now(),
            done=report.judged, total=report.judged + report.failed,
        )  # fmt: skip
