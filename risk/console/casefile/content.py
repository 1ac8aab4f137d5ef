"""What a case file says, in the reader's language and as masked as the page: sections of facts, tables and words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from config.base.clock import business_zone
from risk.alerts.casework import AlertAttachment
from risk.alerts.models import AlertStatus, RiskAlert
from risk.console.page import MAX_HITS, AlertPage


@dataclass(frozen=True)
class Section:
    """facts: pairs of a label and its value. table: heads, rows, and the parts of the width. words: paragraphs. left:
    what is not in it, in a sentence."""

    title: str
    facts: Sequence[tuple[str, str]] = ()
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    widths: Sequence[int] = ()
    words: Sequence[str] = ()
    left: str = ""


def sections_of(
    alert: RiskAlert, page: AlertPage, *, files: Sequence[Any], questions: Sequence[Any], evidence: str
) -> list[Section]:
    """files, questions: rows of `risk.console.casework`. evidence: the hash of what is judged."""
    return [
        _alert(alert, page, evidence),
        _why(page),
        _trades(page),
        _suitability(page),
        _customer(page),
        _earlier(page),
        _related(page),
        _conversation(page),
        _refused(page),
        _hits(page),
        _disposition(alert, page),
        _questions(questions),
        _files(files),
        _timeline(alert, page),
    ]


def local(moment: datetime | None) -> str:
    return moment.astimezone(business_zone()).strftime("%Y-%m-%d %H:%M:%S") if moment else "—"


def _alert(alert: RiskAlert, page: AlertPage, evidence: str) -> Section:
    return Section(
        _("Alert"),
        facts=[
            (_("alert"), alert.pk),
            (_("type"), str(alert.get_alert_type_display())),
            (_("status"), str(alert.get_status_display())),
            (_("level"), str(alert.get_escalation_level_display())),
            (_("score"), str(alert.score)),
            (_("customer or advisor"), page.subject or "—"),
            (_("opened"), local(alert.opened_at)),
            (_("assignee"), alert.assignee.get_username() if alert.assignee else "—"),
            (_("version"), str(alert.version)),
            (_("trace"), alert.trace_id or "—"),
            (_("evidence hash"), evidence),
        ],
    )


def _why(page: AlertPage) -> Section:
    words = []
    for number, finding in enumerate(page.findings, 1):
        state = f" [{finding.state}]" if finding.state else ""
        figures = "; ".join(f"{label}: {value}" for label, value in finding.figures)
        source = f"{finding.rule_id} {finding.rule_name} · " + _("rule version %(version)s") % {
            "version": finding.rule_version
        }
        basis = f" · {_('legal basis')}: {finding.basis}" if finding.basis else ""
        trade = f" · {_('trade')} {finding.trade_id}" if finding.trade_id else ""
        words.append(f"{number}. {finding.text}{state}\n{figures}\n{source}{trade}{basis}")
    return Section(_("Why it fired"), words=words or [_("No hit of this alert stands any more.")])


def _trades(page: AlertPage) -> Section:
    rows = [
        (
            ("● " if row.offending else "") + row.trade.trade_id,
            local(row.trade.traded_at),
            str(row.trade.get_trade_type_display()),
            row.trade.product_id + (f" R{row.product.risk_level}" if row.product else ""),
            f"{row.trade.amount:,.2f} {row.trade.currency}",
            str(row.trade.get_channel_display() or "—"),
            row.trade.advisor_id or "—",
            str(row.trade.get_status_display()),
        )
        for row in page.trades
    ]
    heads = (_("Trade"), _("Traded"), _("Type"), _("Product"), _("Amount"), _("Channel"), _("Advisor"), _("Status"))
    return Section(
        _("Trades"), heads=heads, rows=rows, widths=(22, 22, 12, 16, 24, 12, 14, 14),
        left=_("The offending are marked ●. Others are those of the customer around them, 40 at most.") if rows
        else _("The core system does not answer.") if page.core_away
        else _("None."),
    )  # fmt: skip


def _suitability(page: AlertPage) -> Section:
    facts = [
        (
            local(row.assessed_at)[:10],
            f"C{row.c_level}"
            + (f" · {_('lowest tolerance')}" if row.is_lowest else "")
            + (f" · {_('the latest at the trade')}" if in_force else ""),
        )
        for row, in_force in page.assessments
    ]
    rows = [
        (row.trade.trade_id, str(paper.name), paper.paper_id or (_("missing") if paper.due else _("not needed")))
        for row in page.trades
        if row.offending
        for paper in row.papers
    ]
    heads = (_("Trade"), _("Paper"), _("Number"))
    empty = "" if facts or rows else _("None.")
    return Section(_("Suitability evidence"), facts=facts, heads=heads, rows=rows, widths=(30, 40, 40), left=empty)


def _customer(page: AlertPage) -> Section:
    if not page.alert.customer_id:
        return Section(_("Customer"), left=_("The alert is about no customer."))
    facts = [(_("customer"), page.subject), (_("name"), page.customer_name or "—")]
    facts.append((_("advisors then"), ", ".join(page.advisors) or "—"))
    facts += [(str(line.label), str(line.value)) for line in page.layers.risk]
    rows: list[Sequence[str]] = []
    if page.holdings is not None:
        facts.append((_("positions at the close of"), str(page.holdings.as_of)))
        facts.append((_("total"), f"{page.holdings.total:,.2f} CNY"))
        rows = [
            (row.product_id, str(row.risk_level), f"{Decimal(row.amount):,.2f}", f"{row.percent:.1f} %")
            for row in page.holdings.held
        ]
    heads = (_("Product"), _("Risk level"), _("Amount"), _("Share"))
    return Section(_("Customer"), facts=facts, heads=heads, rows=rows, widths=(30, 20, 30, 20))


def _earlier(page: AlertPage) -> Section:
    rows = [
        (
            local(row.alert.opened_at),
            str(row.alert.score),
            row.words,
            str(row.alert.get_status_display()),
            f"{row.alert.disposition_code} {row.alert.get_disposition_code_display()}"
            if row.alert.disposition_code
            else "—",
        )
        for row in page.earlier
    ]
    heads = (_("Opened"), _("Score"), _("What"), _("Status"), _("Disposition"))
    return Section(
        _("Earlier alerts"), heads=heads, rows=rows, widths=(26, 10, 46, 18, 36), left="" if rows else _("None.")
    )


def _related(page: AlertPage) -> Section:
    rows = [
        (
            local(row.alert.opened_at),
            str(row.alert.score),
            row.words,
            row.subject,
            str(row.alert.get_status_display()),
            "; ".join(str(one) for one in row.why),
        )
        for row in page.related
    ]
    heads = (_("Opened"), _("Score"), _("What"), _("Customer"), _("Status"), _("Why"))
    empty = "" if rows else _("None.")
    return Section(_("Related alerts"), heads=heads, rows=rows, widths=(26, 10, 40, 18, 18, 30), left=empty)


def _conversation(page: AlertPage) -> Section:
    words = []
    for talk in page.talks:
        session = talk.excerpt.session
        said = [f"{session.get_agent_display()} · {talk.actor} · {local(session.created_at)}"]
        for line in talk.lines:
            cut = " …" if line.cut else ""
            who = f"{line.message.get_role_display()}, {local(line.message.created_at)}"
            said.append(f"[{who}] {line.text}{cut}")
        if talk.excerpt.more:
            said.append(
                _("Further messages of that time that are not in it: %(count)d.") % {"count": talk.excerpt.more}
            )
        words.append("\n".join(said))
    return Section(_("Conversation"), words=words, left="" if words else _("None."))


def _refused(page: AlertPage) -> Section:
    rows = [(local(row.at), row.words, row.code, row.target) for row in page.refused]
    heads = (_("At"), _("Why refused"), _("Code"), _("Target"))
    return Section(
        _("Refused accesses"), heads=heads, rows=rows, widths=(26, 56, 26, 28), left="" if rows else _("None.")
    )


def _hits(page: AlertPage) -> Section:
    rows = [
        (
            str(row.hit.score),
            f"{row.hit.rule_id} v{row.hit.rule_version}",
            row.words,
            row.evidence,
            str(row.hit.get_state_display()),
            local(row.hit.occurred_at),
            local(row.hit.detected_at),
        )
        for row in page.hits
    ]
    heads = (_("Score"), _("Rule"), _("Subtypes"), _("Evidence"), _("State"), _("Traded"), _("Detected"))
    left = _("The newest %(most)d are in it.") % {"most": MAX_HITS} if page.more_hits else ""
    return Section(_("Hits"), heads=heads, rows=rows, widths=(10, 20, 24, 38, 14, 26, 26), left=left)


def _disposition(alert: RiskAlert, page: AlertPage) -> Section:
    facts: list[tuple[str, str]] = []
    if alert.proposed_by is not None:
        facts += [
            (_("proposed by"), f"{alert.proposed_by.get_username()}, {local(alert.proposed_at)}"),
            (_("proposed"), f"{alert.get_proposed_status_display()} {alert.proposed_code}"),
            (_("reason"), page.proposed_text),
            (_("evidence that was judged"), alert.proposed_hash),
        ]
    if alert.disposed_by is not None:
        facts += [
            (_("disposed of by"), f"{alert.disposed_by.get_username()}, {local(alert.disposed_at)}"),
            (_("outcome"), f"{AlertStatus(alert.status).label} {alert.disposition_code} "
             f"{alert.get_disposition_code_display()}"),
            (_("reason"), page.disposition_text),
        ]  # fmt: skip
    return Section(_("Disposition"), facts=facts, left="" if facts else _("None yet."))


def _questions(questions: Iterable[Any]) -> Section:
    words = []
    for row in questions:
        asked = row.question
        said = f"{row.recipient} ({asked.get_recipient_kind_display()}) · {row.state}\n{row.text}\n"
        said += f"{asked.asked_by.get_username()}, {local(asked.asked_at)} · {_('due')} {local(asked.due_at)}"
        if asked.closed_by is not None:
            said += f"\n→ {row.closing}\n{asked.closed_by.get_username()}, {local(asked.closed_at)}"
        words.append(said)
    return Section(_("Requests for information"), words=words, left="" if words else _("None."))


def _files(files: Iterable[Any]) -> Section:
    words = []
    for row in files:
        file: AlertAttachment = row.file
        name = row.name or _("erased")
        words.append(
            f"{name} · {file.media_type} · {file.size:,} B · {file.added_by.get_username()}, {local(file.added_at)}\n"
            f"SHA-256 {file.sha256}"
        )
    return Section(_("Files"), words=words, left="" if words else _("None."))


def _timeline(alert: RiskAlert, page: AlertPage) -> Section:
    rows = [
        (
            local(row.at),
            row.who or _("system"),
            " · ".join([str(row.words), *(str(one) for one in row.beside)]),
            row.text,
        )
        for row in page.timeline.rows
    ]
    rows.append((local(alert.opened_at), _("system"), _("opened"), ""))
    left = _("The newest %(most)d are in it.") % {"most": len(rows) - 1} if page.timeline.more else ""
    heads = (_("At"), _("By"), _("Action"), _("Text"))
    return Section(_("Timeline"), heads=heads, rows=rows, widths=(24, 18, 40, 64), left=left)
