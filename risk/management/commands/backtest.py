"""manage.py backtest"""

from __future__ import annotations

import json
import logging
import sys
from argparse import ArgumentParser
from datetime import date, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.management.base import SystemCheckError as FailedChecks
from django.db import Error as NoAnswer
from tqdm import tqdm

from config.base.clock import business_day_bounds
from config.base.errors import DomainError
from config.base.ids import check_id
from risk.rules.backtest import AIM, Report, backtest
from risk.rules.engine import ADVISOR_MODULES
from risk.rules.models import RiskRule
from risk.rules.trials import MAX_YEAR, MIN_YEAR, on_trial

logger = logging.getLogger(__name__)

BROKE_OFF = 4


class Command(BaseCommand):
    help = (
        "Runs a version of a rule, or figures that no version has yet, over past trades and compares it with the hits "
        "that are stored and what officers decided about their alerts. Writes nothing but a row of the audit log. "
        "Exit code: 0 no confirmed alert would be lost, 1 some would, 2 a wrong argument (a tenant in which there is "
        "nobody to judge too), 3 some customers or advisors could not be evaluated, or "
        "stored rows not be read, 4 it came to no end: the database does not answer, or see the log."
    )

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        # `--version` is the rule's here, not Django's.
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--rule", required=True, metavar="RISK-002")
        parser.add_argument("--version", type=int, dest="number", help="which (default: the one in force)")
        parser.add_argument("--params", metavar="JSON", help="figures in place of some of the version's: an object")
        parser.add_argument("--tenant", default="default")
        parser.add_argument("--from", type=date.fromisoformat, dest="first", metavar="DAY", help="first business day")
        parser.add_argument("--to", type=date.fromisoformat, dest="last", metavar="DAY", help="last business day")
        parser.add_argument("--json", action="store_true", help="print the report as one JSON object")

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Whatever goes wrong, 1 is the answer to another question."""
        try:
            return super().execute(*args, **options)
        except NoAnswer as error:
            # Its text may hold an account's name, or a row.
            said = f"the database does not answer as it should ({type(error).__name__}); see manage.py doctor"
        except FailedChecks as error:
            said = f"this installation is not fit: {error}"
        except CommandError:
            raise
        except Exception as error:
            if options.get("traceback"):
                raise
            logger.exception("a backtest broke off")
            said = f"it broke off ({type(error).__name__}); see the log"
        self.stderr.write(f"backtest: {said}")
        sys.exit(BROKE_OFF)

    def handle(self, *args: Any, **options: Any) -> None:
        bar = tqdm(unit=" customers", disable=True if options["json"] else None, file=self.stderr)

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        try:
            since, until = _period(options)
            report = backtest(row=_row(options), since=since, until=until, progress=progress)
            if not report.judged and not report.failed:
                who = "advisors of whom the audit log tells" if report.rule_id in ADVISOR_MODULES else "customers"
                raise DomainError("INVALID_REQUEST", f"tenant {options['tenant']!r} has no {who}: nothing was judged")
        except DomainError as error:
            if options["json"]:
                self.stdout.write(json.dumps({"code": error.code, "detail": error.detail}))
            self.stderr.write(f"backtest: {error.detail}")
            sys.exit(BROKE_OFF if error.status >= 500 else 2)
        finally:
            bar.close()
        self.stdout.write(json.dumps(report.as_json()) if options["json"] else _told(report))
        if report.failed:
            self.stderr.write(f"{report.failed} customers or advisors could not be evaluated; see the log")
        if report.left_out:
            self.stderr.write(
                f"{report.left_out} stored hits or their alerts cannot be read and were left out; see doctor"
            )
        if report.failed or report.left_out:
            sys.exit(3)
        if report.loses_confirmed:
            sys.exit(1)


def _period(options: dict[str, Any]) -> tuple[datetime | None, datetime | None]:
    first, last = options["first"], options["last"]
    for name, day in (("--from", first), ("--to", last)):
        if day is not None and not MIN_YEAR <= day.year <= MAX_YEAR:
            raise DomainError("INVALID_REQUEST", f"{name} {day} is outside the years {MIN_YEAR} to {MAX_YEAR}")
    if first and last and last < first:
        raise DomainError("INVALID_REQUEST", f"--to {last} lies before --from {first}")
    return first and business_day_bounds(first)[0], last and business_day_bounds(last)[1]


def _row(options: dict[str, Any]) -> RiskRule:
    params: Any = {}
    if options["params"] is not None:
        try:
            params = json.loads(options["params"])
        except ValueError as error:
            raise DomainError("INVALID_REQUEST", f"--params is no JSON: {error}") from error
        except RecursionError:
            raise DomainError("INVALID_REQUEST", "--params is no JSON that holds figures: it is too deep") from None
        if not isinstance(params, dict):
            raise DomainError("INVALID_REQUEST", '--params is a JSON object, as {"product_limit": "0.35"}')
    check_id("tenant", options["tenant"])
    return on_trial(tenant=options["tenant"], rule_id=options["rule"], version=options["number"], params=params)


def _told(report: Report) -> str:
    found = report.as_json()
    confirmed, false = found["confirmed"], found["false_positive"]
    lines = [
        f"{found['rule']} version {found['version']}: {found['judged']} judged",
        f"confirmed alerts: {confirmed['kept']} kept, {confirmed['lost']} lost",
        *(f"  lost: {one['alert_id']} {one['code']} score {one['score']}" for one in confirmed["listed"]),
        f"false positives: {false['kept']} kept, {false['saved']} saved",
        *(f"  saved: {one['alert_id']} {one['code']} score {one['score']}" for one in false["listed"]),
        "hits: " + ", ".join(f"{name} {one['kept']} kept {one['lost']} lost" for name, one in found["hits"].items()),
        f"new hits: {found['new']['hits']}; other scores: {found['rescored']}, other bands: {found['other_band']}",
        f"precision: {found['precision']['before']} before, {found['precision']['after']} after",
        f"alerts a day over {found['alerts_a_day']['days']} days: {found['alerts_a_day']['now']} now, "
        f"{found['alerts_a_day']['then']} then ({found['alerts_a_day']['an_officer']} an officer, aim {AIM})",
    ]
    if report.kept_by_others:
        lines.append(f"{report.kept_by_others} alerts would stay for other findings alone")
    if report.waiting:
        lines.append(f"{report.waiting} customers wait for a scan: what is stored of them may be old")
    return "\n".join(lines)
