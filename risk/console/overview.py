"""The overview page: the workbench, what is most urgent, the figures, and how the system itself stands."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _

from config.base.clock import business_zone, now, rfc3339
from guard.access.roles import may
from risk.alerts.models import AlertType, DispositionCode
from risk.console import backlogs, tallies
from risk.console.board import (
    CELL_LIMIT,
    LEVELS,
    PIECES,
    Board,
    board_of,
    code_lines,
    open_alerts,
    own_counts,
    rule_lines,
)
from risk.console.charts import Bar, Cell, Part, bars, columns, table
from risk.console.counting import BANDS, capped, counts_of
from risk.console.feed import feed_seq, request_sight, request_tenant
from risk.console.filters import AGES, DUES, TABS, Filters, hour_words
from risk.console.queue import page_of
from risk.console.rows import cells, rows_of
from risk.console.words import RULES

URGENT_ROWS = 8
COLUMNS = ("due", "score", "level", "sentence", "customer", "hits", "assignee", "status")
_TAB_OF = {AlertType.EVENT: "customers", AlertType.PATTERN: "conduct", AlertType.REPORT: "reports"}
AUDIT = "guard.view_auditlog"


def urls(site: AdminSite) -> list[Any]:
    return [path("overview/", site.admin_view(figures_view), name="overview")]


def overview_context(request: HttpRequest) -> dict[str, Any]:
    """What this person may see of it; nothing for people whose overview is the list of what they may open."""
    context = figures_context(request)
    if not request_sight(request).cases:
        return context
    tenant, sight = request_tenant(request), request_sight(request)
    feed_seq(request)
    page = page_of(tenant=tenant, user=request.user, sight=sight, filters=Filters(), size=URGENT_ROWS)
    return {
        **context,
        "urgent": rows_of(page, tenant=tenant, columns=COLUMNS),
        "urgent_limit": URGENT_ROWS,
        "cells": cells(COLUMNS),
        "plain": ",".join(COLUMNS),
        "clock": rfc3339(now()),
    }


def figures_view(request: HttpRequest) -> HttpResponse:
    """The figures alone, for the page that shows them. Whoever has none is refused."""
    context = figures_context(request)
    if not context:
        raise PermissionDenied
    response = TemplateResponse(request, "risk/console/_board.html", context)
    response["Cache-Control"] = "no-store"
    return response


def figures_context(request: HttpRequest) -> dict[str, Any]:
    """Officers and managers: alerts, and how the feed stands. Operators: faults in the data, and what is on its way.
    Auditors: the audit log's seals and refusals. All of their own tenant."""
    sight, tenant = request_sight(request), request_tenant(request)
    context: dict[str, Any] = {}
    states: list[backlogs.State] = []
    if sight.cases:
        board = board_of(tenant=tenant)
        own = own_counts(tenant=tenant, user=request.user, sight=sight)
        context |= {"tiles": _workbench(board, own), **_charts(board), "board_at": board.at.astimezone(business_zone())}
    if sight.faults:
        faults = counts_of({"faults": open_alerts(tenant, AlertType.DATA_QUALITY)})["faults"]
        tile = _tile("faults", TABS["faults"].label, faults, Filters(tab="faults").link(), _("trades not judged"))
        context["tiles"] = [*context.get("tiles", []), tile]
    if sight.anything:
        states += backlogs.feed(tenant) + backlogs.storing(tenant, counts=sight.faults)
    if may(request.user, AUDIT) or (request.user.is_superuser and sight.anything):  # type: ignore[union-attr]
        states += backlogs.sealing(tenant)
    if states:
        context["states"] = states
    return context


def _tile(name: str, label: Any, count: str, link: str, note: Any = "") -> dict[str, Any]:
    queue = reverse("admin:risk_riskalert_changelist")
    return {"name": name, "label": label, "count": count, "link": queue + link, "note": note}


def _workbench(board: Board, own: dict[str, int]) -> list[dict[str, Any]]:
    """RISK.md 5, in its order; then the tabs beside the customers' alerts."""
    base, acts = Filters(), "mine" in own
    whose = {"assignee": "me"} if acts else {}
    tiles = [
        _tile("due", _("Due within 2 hours"), capped(board.of("tile", "due")), base.link(due="2h")),
    ]
    if acts:
        tiles.append(_tile("mine", _("Mine"), capped(own["mine"]), base.link(assignee="me"), _("claimed by me")))
    state = "others" if acts else ""
    tiles += [
        _tile("review", _("Awaiting my review") if acts else _("Awaiting review"), capped(own["review"]),
              base.link(tab="review", state=state), _("put forward by others") if acts else ""),
        _tile("returned", _("Returned"), capped(own["returned"]), base.link(back="returned", **whose),
              _("by a second officer")),
        _tile("woken", _("Woken"), capped(own["woken"]), base.link(back="woken", **whose), _("were put aside")),
        _tile("unassigned", _("Unassigned"), capped(board.of("tile", "unassigned")), base.link(assignee="none")),
        _tile("conduct", TABS["conduct"].label, capped(board.of("tile", "conduct")), base.link(tab="conduct")),
        _tile("reports", TABS["reports"].label, capped(board.of("tile", "reports")), base.link(tab="reports")),
    ]  # fmt: skip
    return tiles


def _charts(board: Board) -> dict[str, Any]:
    base = Filters()
    queue = reverse("admin:risk_riskalert_changelist")

    def link(**changes: Any) -> str:
        return queue + base.link(**changes)

    level_words = {"LEVEL_2": _("level 2"), "LEVEL_1": _("level 1"), "none": _("no level")}
    ages = table(
        [AGES[age][0] for age in PIECES],
        [
            (level_words[level], [
                Cell(board.of(level, age), capped(board.of(level, age), CELL_LIMIT), link(level=level, age=age))
                for age in PIECES
            ])
            for level in LEVELS
        ],
    )  # fmt: skip
    due = bars(
        Bar(label, board.of("due", name), capped(board.of("due", name)), link(due=name), f"due-{name}")
        for name, label in DUES.items()
    )
    scores = bars(
        Bar(f"{label} ({low}–{high})", board.of("band", name), capped(board.of("band", name)),
            link(low=low, high=high), name)
        for name, (low, high, label) in BANDS.items()
    )  # fmt: skip
    return {
        "ages": ages,
        "due": due,
        "scores": scores,
        "hours": _hours(board, queue),
        "rules": _rules(board, queue),
        "codes": _codes(board, queue),
        "whole_since": _local(board.figures.whole_since),
        "days": tallies.DAYS,
    }


def _hours(board: Board, queue: str) -> dict[str, Any]:
    zone = business_zone()
    items = []
    for begins, count in board.figures.hours:
        local, after = begins.astimezone(zone), (begins + timedelta(hours=1)).astimezone(zone)
        where = queue + Filters().link(state="all", opened=hour_words(begins))
        items.append(Part(f"{local:%H}", f"{local:%m-%d %H:%M} – {after:%H:%M}", count, f"{count:,}", where))
    return columns(items)


def _rules(board: Board, queue: str) -> list[dict[str, Any]]:
    lines = rule_lines(board.figures)
    most = max([1, *(line.opened for line in lines), *(sum(line.outcomes.values()) for line in lines)])
    found = []
    for line in lines:
        kind = tallies.KIND_OF_RULE.get(line.rule)
        tab = (
            {AlertType.REPORT: "reports", AlertType.PATTERN: "conduct"}.get(kind, "customers") if kind else "customers"
        )
        base = Filters(tab=tab)

        def link(base: Filters = base, rule: str = line.rule, **more: Any) -> str:
            return queue + base.link(rule=rule, **more)

        done = [
            {"name": status, "count": f"{n:,}", "width": 100 * n / most, "link": link(state=status, since="30d")}
            for status, n in line.outcomes.items()
        ]
        at = 0.0
        for one in done:
            one["x"] = at
            at += float(one["width"])  # type: ignore[arg-type]
        found.append(
            {
                "rule": line.rule, "words": RULES[line.rule],
                "opened": f"{line.opened:,}", "width": 100 * line.opened / most,
                "opened_link": link(state="all", opened="30d"),
                "open": capped(board.of("rule", line.rule)), "open_link": link(),
                "done": done, "rate": line.rate, "false": f"{line.false:,}", "judged": f"{line.judged:,}",
                "false_link": link(state="false_positive", since="30d"),
            }
        )  # fmt: skip
    return found


def _codes(board: Board, queue: str) -> list[Bar]:
    words = dict(DispositionCode.choices)
    statuses = {"confirmed": _("confirmed"), "false_positive": _("false positive"), "closed": _("closed")}
    return bars(
        Bar(
            f"{code} {words[code]}" if code else statuses.get(status, status),
            count,
            f"{count:,}",
            queue + Filters().link(state=status, code=code, since="30d"),
            status,
            statuses.get(status, status) if code else "",
        )
        for status, code, count in code_lines(board.figures)
    )


def _local(moment: Any) -> Any:
    return moment.astimezone(business_zone()) if moment else None
