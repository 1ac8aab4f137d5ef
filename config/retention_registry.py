"""What each table is kept for, as a document, and the tables that no room of ours owns."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.db.models import QuerySet

from config.base.retention import NO_LONGER, Retention, Rows, kept, register, registered
from guard import pruning

APPS = ("guard", "memory", "risk")
LAWS = (
    "- Securities Law (2019) art. 137: customers' files, orders, trades and internal records, at least 20 years.",
    "- Measures on the Suitability of Securities and Futures Investors (CSRC) art. 32: matching, warnings, recordings,",
    "  self-reviews, at least 20 years.",
    "- Anti-Money-Laundering Law (as revised in 2024, in force since 2025-01-01) art. 34: customers' identity after",
    "  the end of the relation, and transactions after their end, at least 10 years (5 before).",
    "- Personal Information Protection Law (PIPL) art. 19: the shortest time that the purpose needs; art. 47: erasure.",
)


def load() -> list[Retention]:
    """Imports `retention.py` of every room and of the rooms within, and returns all rules by name."""
    for app in APPS:
        package = importlib.import_module(app)
        for module in pkgutil.walk_packages(package.__path__, f"{app}."):
            if not module.ispkg and module.name.endswith(".retention"):
                importlib.import_module(module.name)
    _register_djangos()
    return registered()


@cache
def _register_djangos() -> None:
    account = "who may use the console; an account that is over is switched off, for what it did names it"
    register(
        *(
            kept(model, "accounts, roles and rights of the console", account)
            for model in (
                User, Group, Permission, User.groups.through, User.user_permissions.through, Group.permissions.through,
            )
        ),
        kept(ContentType, "names of models", "part of the code"),
        Retention(
            Session._meta.db_table,
            "logins to the console",
            "nothing can be done with one that is over; logging in and out is in the audit log",
            until="its end",
            sweep=pruning.prune_console_sessions,
        ),
        Retention(
            LogEntry._meta.db_table,
            "the console's own list of recent edits",
            f"a convenience: each act is in the audit log for good. {NO_LONGER}",
            days=400,
            since="the edit",
            rows=Rows(LogEntry, _edits, grows_with="action_time"),
        ),
    )  # fmt: skip


def _edits(before: datetime) -> QuerySet[LogEntry]:
    return LogEntry.objects.filter(action_time__lt=before)


def unspoken() -> list[str]:
    """Tables that no rule speaks of."""
    spoken = {rule.table for rule in load()}
    tables = {model._meta.db_table for model in apps.get_models(include_auto_created=True) if model._meta.managed}
    return sorted(tables - spoken)


def duration(rule: Retention, days: int | None) -> str:
    """`20 years`, `90 days`, or what ends it."""
    if days is None:
        return rule.until
    years = round(days / 365.25)
    if days >= 365 * 5 and round(years * 365.25) in (days, days + 1, days - 1):
        return f"{years} years ({days} days)"
    return f"{days} days"


def as_rows(rules: Sequence[Retention]) -> list[dict[str, Any]]:
    return [
        {
            "name": rule.name,
            "table": rule.table,
            "holds": rule.holds,
            "days": rule.period,
            "default_days": rule.days,
            "floor_days": rule.floor if rule.days is not None and rule.floor > 1 else None,
            "since": rule.since,
            "until": rule.until,
            "why": rule.why,
            "held_back": rule.held_back,
            "pruned": rule.prunable,
        }
        for rule in rules
    ]


def as_markdown(rules: Sequence[Retention]) -> str:
    """With the defaults, whatever this installation has set."""
    lines = [
        "# How long each table is kept",
        "",
        "Written by `manage.py prune --write` from the rooms' `retention.py`; do not edit.",
        "",
        "`manage.py prune` removes what is over, and so does beat each night (`config.prune`). Days can be changed:",
        "`RETENTION=alert_outbox=30,analytics_query_text=90`; fewer than `at least` are refused at start. Rows marked",
        "`GUARD_HISTORY_DAYS` follow that setting and go every ten minutes (`guard.prune`).",
        "",
        "A legal hold keeps all rows of the customer, whatever their age; an erasure removes them before it, except",
        "what its receipt lists. Backups and binary logs are kept as long as whoever makes them decides.",
        "",
        *LAWS,
        "",
        "| table | what | kept | at least | from | why | held back by |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for rule in rules:
        period = f"`{rule.setting}`" if rule.setting else duration(rule, rule.days)
        least = duration(rule, rule.floor) if rule.days is not None and rule.floor > 1 else "-"
        cells = [f"`{rule.name}`", rule.holds, period, least, rule.since or "-", rule.why, rule.held_back or "-"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
