"""manage.py backtest"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from datetime import date
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from tqdm import tqdm

from config.base.clock import business_day_bounds
from config.base.errors import DomainError
from config.base.ids import check_id
from risk.rules.backtest import AIM, Report, backtest
from risk.rules.models import RiskRule
from risk.rules.trials import on_trial


class Command(BaseCommand):
    help = (
        "Runs a version of a rule, or figures that no version has yet, over past trades and compares it with the hits "
        "that are stored and what officers decided about their alerts. Writes nothing but a row of the audit log. "
        "Exit code: 0 no confirmed alert would be lost, 1 some would, 2 a wrong argument, 3 some customers or advisors "
        "could not be evaluated."
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

    def handle(self, *args: Any, **options: Any) -> None:
        bar = tqdm(unit=" customers", disable=True if options["json"] else None, file=self.stderr)

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        try:
            report = backtest(
                row=_row(options),
                since=business_day_bounds(options["first"])[0] if options["first"] else None,
                until=business_day_bounds(options["last"])[1] if options["last"] else None,
                progress=progress,
            )
        except DomainError as error:
            if options["json"]:
                self.stdout.write(json.dumps({"code": error.code, "detail": error.detail}))
            self.stderr.write(f"backtest: {error.detail}")
            sys.exit(2)
        finally:
            bar.close()
        self.stdout.write(json.dumps(report.as_json()) if options["json"] else _told(report))
        if report.failed:
            self.stderr.write(f"{report.failed} customers or advisors could not be evaluated; see the log")
            sys.exit(3)
        if report.loses_confirmed:
            sys.exit(1)


def _row(options: dict[str, Any]) -> RiskRule:
    params: Any = {}
    if options["params"] is not None:
        try:
            params = json.loads(options["params"])
        except ValueError as error:
            raise DomainError("INVALID_REQUEST", f"--params is no JSON: {error}") from error
        if not isinstance(params, dict):
            raise DomainError("INVALID_REQUEST", '--params is a JSON object, as {"product_limit": "0.35"}')
    if options["first"] and options["last"] and options["last"] < options["first"]:
        raise DomainError("INVALID_REQUEST", f"--to {options['last']} lies before --from {options['first']}")
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
