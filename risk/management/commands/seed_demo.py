"""manage.py seed_demo"""

from __future__ import annotations

import json
import os
import secrets
import sys
from argparse import ArgumentParser
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.management.base import BaseCommand
from django.db import transaction

from config.base.clock import business_date, now
from config.base.errors import DomainError
from config.base.ids import new_id
from guard.access.roles import COMPLIANCE_AUDITOR, PLATFORM_ADMIN, RISK_MANAGER, RISK_OFFICER
from memory.core.demo import Demo, generate, write_csv
from memory.core.importer import import_tables
from memory.core.models import CoreCustomer, CoreProduct, CoreTrade, refuse_if_external
from memory.core.reading import shown
from memory.core.selectors import advisors_of, customers_facts
from memory.profiles.derived import age_on
from risk.alerts.models import RiskAlert
from risk.conduct.demo import tell
from risk.conduct.services import scan_conduct
from risk.rules.facts import Facts
from risk.rules.services import scan

USERS = {
    "officer": RISK_OFFICER,
    "officer2": RISK_OFFICER,
    "manager": RISK_MANAGER,
    "manager2": RISK_MANAGER,
    "auditor": COMPLIANCE_AUDITOR,
    "admin": PLATFORM_ADMIN,
}
TENANT = "default"
OLD = 65  # years from which an R5 product is one more finding


class Command(BaseCommand):
    help = (
        "Fills the core tables with a made-up year: customers with Chinese names, advisors, products, trades, "
        "assessments, positions, and planted violations (listed in DATA_DIR/demo_violations.json). Makes the console's "
        "demo users (DATA_DIR/demo_logins.json) and scans. The same arguments make the same demo. "
        "Exit code: 0 done, 2 refused."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--customers", type=int, default=200)
        parser.add_argument("--advisors", type=int, default=12)
        parser.add_argument("--seed", type=int, default=20261130)
        parser.add_argument("--days", type=int, default=365, help="how long the story is (at least 90)")
        parser.add_argument("--end", type=date.fromisoformat, help="its last day (default: yesterday)")
        parser.add_argument("--if-empty", action="store_true", help="leave core data that is there alone")
        parser.add_argument("--force", action="store_true", help="also where DATABASE_URL is set")
        parser.add_argument("--no-scan", action="store_true", help="leave the scan to the worker")
        parser.add_argument("--csv", type=Path, metavar="DIR", help="write CSV files for import_core, nothing else")
        parser.add_argument(
            "--live-trade", action="store_true", help="only this: one risky trade, now, scanned at once"
        )
        parser.add_argument("--json", action="store_true", help="print the report as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            report = self._with_files_told(options)
        except DomainError as error:
            if options["json"]:
                self.stdout.write(json.dumps({"code": error.code, "detail": error.detail}))
            self.stderr.write(f"seed_demo: {error.detail}")
            sys.exit(2)
        if options["json"]:
            self.stdout.write(json.dumps(report))
        else:
            for name, value in report.items():
                self.stdout.write(f"{name}: {value}")

    def _with_files_told(self, options: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._run(options)
        except OSError as error:
            if error.filename is None:  # a socket's, not a file's
                raise
            place = shown(str(error.filename), 300)
            raise DomainError("INVALID_REQUEST", f"{place} cannot be written: {error.strerror}") from error

    def _run(self, options: dict[str, Any]) -> dict[str, Any]:
        for name, least in (("customers", 1), ("advisors", 1), ("days", 90)):
            if options[name] < least:
                raise DomainError("INVALID_REQUEST", f"--{name} is {options[name]}; at least {least} is needed")
        end = options["end"] or _last_end() or business_date(now()) - timedelta(days=1)
        if options["csv"]:
            demo = _demo(options, end)
            write_csv(demo, options["csv"])
            _write(options["csv"] / "demo_violations.json", _listed(demo, end))
            return {"csv": str(options["csv"]), "trades": len(demo.tables["trades.csv"])}
        refuse_if_external()
        if not settings.EMBEDDED_DATABASE and not options["force"]:
            raise DomainError(
                "FORBIDDEN", "DATABASE_URL is set, so this may be production: made-up data needs --force there"
            )
        if options["live_trade"]:
            return plant_live_trade()
        report: dict[str, Any] = {"logins": str(ensure_users())}
        # There from before the first row until after the last: a story that was cut short is told again.
        begun = settings.DATA_DIR / ".demo_begun"
        if options["if_empty"] and CoreCustomer.objects.filter(tenant=TENANT).exists() and not begun.exists():
            return {**report, "core": "left as it is"}
        begun.touch()
        demo = _demo(options, end)
        imported = import_tables(tenant=TENANT, tables=demo.tables)
        report["conduct"] = tell(tenant=TENANT, deeds=demo.planted.conduct)
        listed = _listed(demo, end)
        listed["violations"] = [*listed["violations"], *demo.planted.conduct_violations, *_live_ones()]
        listed["conduct_silent"] = demo.planted.conduct_silent
        _write(settings.DATA_DIR / "demo_violations.json", listed)
        report.update(
            {file.file.removesuffix(".csv"): file.rows for file in imported.files},
            written=imported.written,
            planted=len(demo.planted.violations) + len(demo.planted.conduct_violations),
        )
        if not options["no_scan"]:
            scanned = scan(tenant=TENANT, patience=10.0, audited=True)
            advisors = scan_conduct(tenant=TENANT, unfound=True, patience=10.0, audited=True)
            report.update(
                customers_scanned=scanned.customers,
                advisors_scanned=advisors.advisors,
                hits=scanned.hits + advisors.hits,
                failed=len(scanned.failed) + len(advisors.failed),
            )
        begun.unlink(missing_ok=True)
        return report


def _demo(options: dict[str, Any], end: date) -> Demo:
    return generate(
        customers=options["customers"],
        advisors=options["advisors"],
        seed=options["seed"],
        days=options["days"],
        end=end,
    )


def _last_end() -> date | None:
    """The last day of the story that is already here, so that telling it again changes nothing."""
    path = settings.DATA_DIR / "demo_violations.json"
    if not CoreCustomer.objects.filter(tenant=TENANT).exists() or not path.exists():
        return None
    return date.fromisoformat(json.loads(path.read_text(encoding="utf-8"))["end"])


def _listed(demo: Demo, end: date) -> dict[str, Any]:
    return {
        "end": end.isoformat(),
        "violations": demo.planted.violations,
        "silent": demo.planted.silent,
        "data_quality": demo.planted.data_quality,
    }


def _live_ones() -> list[dict[str, Any]]:
    """Planted by --live-trade earlier: still in the core, so still to be found."""
    path = settings.DATA_DIR / "demo_violations.json"
    if not path.exists():
        return []
    listed = json.loads(path.read_text(encoding="utf-8"))["violations"]
    return [violation for violation in listed if violation["trade_id"].startswith("LIVE-")]


def _write(path: Path, content: Any, mode: int = 0o644) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(content, stream, ensure_ascii=False, indent=1)
        stream.write("\n")
    draft.replace(path)


def ensure_users() -> Path:
    """The demo's people, with one random password; those who are there already keep theirs, and so does the file."""
    path = settings.DATA_DIR / "demo_logins.json"
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    password = known.get("password") or secrets.token_urlsafe(12)
    model = get_user_model()
    made = []
    with transaction.atomic():
        for username, role in USERS.items():
            user, created = model._default_manager.get_or_create(
                username=username, defaults={"is_staff": True, "is_superuser": role == PLATFORM_ADMIN}
            )
            if created:
                user.set_password(password)
                user.save()
                user.groups.add(Group.objects.get_or_create(name=role)[0])
                made.append({"username": username, "role": role})
    if made:
        # Only people whose password this is: others of these names were there before and keep their own.
        _write(path, {"password": password, "users": [*known.get("users", []), *made]}, 0o600)
    return path


def plant_live_trade() -> dict[str, Any]:
    """A customer of the lowest tolerance buys an R5 product this minute; the alert is there when this returns.

    Steps: 1. choose a lowest-tolerance customer, preferring one under 65 whose trade opens an alert of its own (none
    pending that it would join, no trade today), and an R5 product, not complex where there is one, for less than a
    dormant account is asked about: the lowest tolerance is all that is wrong;
    2. import the trade; 3. scan that customer.
    Errors: NOT_FOUND when the core holds no such customer or product.
    """
    moment = now()
    names = list(CoreCustomer.objects.filter(tenant=TENANT).values_list("customer_id", flat=True).distinct())
    joining = set(
        RiskAlert.objects.filter(tenant=TENANT, merge_slot__isnull=False).values_list("merge_slot", flat=True)
    )
    lowest = []
    for customer_id, rows in customers_facts(tenant=TENANT, customer_ids=names).items():
        facts = Facts(rows)
        row, assessment = facts.customer_at(moment), facts.assessment_at(moment)
        traded_today = any(trade.day == business_date(moment) for trade in facts.trades)
        if row and row.investor_type != "professional" and assessment and assessment.is_lowest:
            old = row.birth_date is not None and age_on(row.birth_date, business_date(moment)) >= OLD
            lowest.append((old, customer_id in joining, traded_today, secrets.token_hex(4), customer_id))
    risky = CoreProduct.objects.filter(tenant=TENANT, risk_level=5)
    product = risky.order_by("is_complex", "product_id").first()
    if not lowest or product is None:
        raise DomainError(
            "NOT_FOUND", "the core has no lowest-tolerance customer or no R5 product; run seed_demo first"
        )
    customer_id = min(lowest)[-1]
    advisors = advisors_of(tenant=TENANT, customer_id=customer_id)
    trade_id = f"LIVE-{new_id()}"
    amount = 10_000 + secrets.randbelow(400) * 100  # below 50,000
    cells = {
        "trade_id": trade_id,
        "version": "1",
        "customer_id": customer_id,
        "product_id": product.product_id,
        "advisor_id": advisors[0] if advisors else "",
        "trade_type": "buy",
        "traded_at": moment.isoformat(),
        "amount": f"{amount}.00",
        "currency": "CNY",
        "fx_cny": "1",
        "fx_usd": "0.1405",
        "quantity": str(amount),
        "price": "1",
        "status": "executed",
        "channel": "branch",
        "settle_method": "transfer",
        "solicited": "true",
    }
    imported = import_tables(tenant=TENANT, tables={"trades.csv": [cells]})
    if imported.bad or not CoreTrade.objects.filter(tenant=TENANT, trade_id=trade_id).exists():
        raise DomainError("INVALID_REQUEST", "; ".join(str(error) for file in imported.files for error in file.errors))
    scanned = scan(tenant=TENANT, customers=[customer_id], patience=10.0)
    path = settings.DATA_DIR / "demo_violations.json"
    if path.exists():
        listed = json.loads(path.read_text(encoding="utf-8"))
        listed["violations"].append(
            {
                "rule": "RISK-001",
                "trade_id": trade_id,
                "evidence_key": f"{trade_id}@1",
                "subtypes": ["suitability_lowest"],
                "score": 95,
            }
        )
        _write(path, listed)
    return {"trade_id": trade_id, "customer_id": customer_id, "hits": scanned.hits}
