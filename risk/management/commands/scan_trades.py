"""manage.py scan_trades"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from tqdm import tqdm

from config.base.errors import DomainError
from config.base.ids import check_id
from memory.core.watch import CLAIM_SECONDS as LOOK_CLAIM_SECONDS
from memory.core.watch import Look, look_at_all
from risk.conduct.services import CLAIM_SECONDS as ADVISOR_CLAIM_SECONDS
from risk.conduct.services import ConductReport, scan_conduct
from risk.rules.services import CLAIM_SECONDS, mark_everybody, scan, together
from risk.rules.side_by_side import MOST, scan_side_by_side


class Command(BaseCommand):
    help = (
        "Runs the rules over the customers whose facts changed since they were last evaluated (which the worker does "
        "every five seconds too), or over all or some of them, and then, but for --customer, over the advisors of whom "
        "the audit log tells something new. Repeating a scan changes nothing. "
        "Exit code: 0 done, 1 some customers or advisors could not be evaluated or are still with another scanner, or "
        "a process died, 2 a wrong argument."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--all", action="store_true", help="every customer and advisor, changed or not")
        which.add_argument(
            "--core", action="store_true", help="look for changes in the external core first: all of its customers"
        )
        which.add_argument("--customer", action="append", metavar="ID", help="this customer; may be repeated")
        parser.add_argument(
            "--processes", type=int, default=1, metavar="N", help="so many at once, each with customers of its own"
        )
        parser.add_argument("--only-customers", action="store_true", help="no advisors afterwards")
        parser.add_argument("--tenant", help="only this tenant (default: all; with --customer: default)")
        parser.add_argument("--json", action="store_true", help="print the report as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = options["tenant"] or ("default" if options["customer"] else None)
        processes = options["processes"]
        if not 1 <= processes <= MOST or (processes > 1 and options["customer"]):
            self.stderr.write(f"scan_trades: --processes takes 1 to {MOST}, and more than 1 not with --customer")
            sys.exit(2)
        if options["core"] and not settings.CORE_IS_EXTERNAL:
            self.stderr.write(
                "scan_trades: --core is for an external core (CORE_DATABASE_URL); imports mark what they change"
            )
            sys.exit(2)
        looked = self._look(quiet=options["json"]) if options["core"] else None
        bar = tqdm(unit=" customers", disable=True if options["json"] else None, file=self.stderr)
        try:
            if processes > 1:
                if tenant is not None:
                    check_id("tenant", tenant)
                if options["all"]:
                    mark_everybody(tenant=tenant)
                report = scan_side_by_side(processes=processes, tenant=tenant)
            # What the last of them left, and the scan itself where there is one process.
            rest = scan(
                tenant=tenant,
                customers=options["customer"],
                everything=options["all"] and processes == 1,
                patience=CLAIM_SECONDS + 10.0,  # by then a dead scanner's claims have ended
                audited=True,
                progress=lambda customers: bar.update(customers) and None,
            )
            report = rest if processes == 1 else together([report, rest])
            conduct = ConductReport()
            if not options["customer"] and not options["only_customers"]:
                conduct = scan_conduct(
                    tenant=tenant,
                    everything=options["all"],
                    unfound=True,
                    patience=ADVISOR_CLAIM_SECONDS + 10.0,
                    audited=True,
                )
        except DomainError as error:
            self.stderr.write(f"scan_trades: {error.detail}")
            sys.exit(2)
        finally:
            bar.close()
        if options["json"]:
            core = {} if looked is None else {"core": looked.as_json()}
            self.stdout.write(json.dumps({**report.as_json(), **core, "conduct": conduct.as_json()}))
        else:
            self.stdout.write(
                f"{report.customers} customers evaluated: {report.hits} live hits, "
                f"{report.data_quality} trades with missing facts, {len(report.failed)} customers failed"
            )
            if looked is not None:
                self._tell(looked)
            if not (options["all"] or options["customer"] or report.customers):
                self.stdout.write("nothing had changed since the last scan (the worker scans every few seconds too)")
            if conduct.advisors:
                self.stdout.write(
                    f"{conduct.advisors} advisors evaluated: {conduct.hits} live hits, "
                    f"{conduct.data_quality} reported trades that the core does not have"
                )
            for customer_id in sorted(report.failed):
                self.stderr.write(f"failed, tried again within minutes: {customer_id}")
            if report.died:
                self.stderr.write(f"{report.died} of {processes} processes died; the others have done their work")
            if report.left:
                self.stderr.write(f"{report.left} customers are still with another scanner")
            for advisor_id in sorted(conduct.failed):
                self.stderr.write(f"failed, tried again within minutes: advisor {advisor_id}")
            if conduct.left:
                self.stderr.write(f"{conduct.left} advisors are still with another scanner")
        unseen = looked is not None and not looked.complete
        if report.failed or report.left or report.died or conduct.failed or conduct.left or unseen:
            sys.exit(1)

    def _look(self, *, quiet: bool) -> Look:
        with tqdm(unit=" customers looked at", disable=True if quiet else None, file=self.stderr) as bar:
            return look_at_all(patience=LOOK_CLAIM_SECONDS + 10.0, progress=lambda many: bar.update(many) and None)

    def _tell(self, looked: Look) -> None:
        self.stdout.write(
            f"{looked.customers} customers of the core looked at: {looked.new} new, {looked.marked} marked to be judged"
        )
        if looked.odd:
            self.stderr.write(f"{looked.odd} names in the core are no ids of customers, and were left out")
        if looked.away:
            self.stderr.write("the core stopped answering: the rest was not looked at")
        elif not looked.complete:
            self.stderr.write("another process took over the look at the core")
