"""The overview: figures that are those of the lists they lead to, for those who may see them, at a fixed price."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from config.base.clock import business_date, business_day_bounds, now
from risk.alerts.models import AlertOutbox, AlertStatus, AlertType, WokenBy
from risk.console import board, tallies
from risk.console.models import AlertTally
from risk.console.tallies import figures, tally
from tests.risk.console.make import (
    make_alert,
    make_auditor,
    make_client,
    make_manager,
    make_officer,
    make_operator,
    make_person,
)

pytestmark = pytest.mark.django_db
FIGURES = "/admin/overview/"


def read(client: Client, address: str = "/admin/") -> str:
    board.forget()
    response = client.get(address)
    assert response.status_code == 200
    return str(response.content.decode())


def tiles(text: str) -> dict[str, tuple[str, str]]:
    """Of each tile its figure and the address it leads to."""
    found = re.findall(r'<a class="x-tile (\w+)" href="([^"]+)"><b>([^<]+)</b>', text)
    return {name: (count, unescape(link)) for name, link, count in found}


def rows_at(client: Client, link: str) -> int:
    return len(re.findall(r'<tr data-id="', client.get(link).content.decode()))


def make_work(officer: Any, other: Any) -> None:
    """Of each tile of the workbench another number."""
    at = now()
    make_alert("C1", dispose_due_at=at + timedelta(hours=1))
    make_alert("C2", assignee=officer, status=AlertStatus.IN_REVIEW, dispose_due_at=at - timedelta(hours=1))
    make_alert("C3", assignee=officer, status=AlertStatus.IN_REVIEW, woken_by=WokenBy.TIME, woken_at=at)
    make_alert("C4", assignee=officer, status=AlertStatus.IN_REVIEW, woken_by=WokenBy.RETURNED, woken_at=at)
    make_alert("C5", assignee=other, status=AlertStatus.ESCALATED, proposed_by=other, score=85)
    make_alert("C6", assignee=officer, status=AlertStatus.ESCALATED, proposed_by=officer, score=85)
    make_alert("C7", opened_at=at - timedelta(days=3), escalation_level="LEVEL_1")
    make_alert("C8", opened_at=at - timedelta(days=40), escalation_level="LEVEL_2")
    make_alert("", alert_type=AlertType.PATTERN, score=75, rule_ids=["RISK-008"])
    make_alert("C9", alert_type=AlertType.REPORT, score=30, rule_ids=["RISK-003"])


def make_disposed(customer: str, status: AlertStatus, code: str, **fields: Any) -> None:
    moment = fields.pop("disposed_at", now() - timedelta(minutes=1))
    confirmed = {"confirmed_at": moment} if status == AlertStatus.CONFIRMED else {}
    make_alert(
        customer,
        **{
            "status": status, "disposition_code": code, "disposed_at": moment, "opened_at": moment - timedelta(hours=1),
            **confirmed, **fields,
        },
    )  # fmt: skip


# --- each figure is its list's ----------------------------------------------------------------------------------------


def test_each_tile_of_the_workbench_counts_the_list_that_it_leads_to() -> None:
    lin, zhou = make_officer(), make_officer("zhou")
    make_work(lin, zhou)
    client = make_client(lin)
    found = tiles(read(client))
    assert {name: count for name, (count, _link) in found.items()} == {
        "due": "1", "mine": "4", "review": "1", "returned": "1", "woken": "1", "unassigned": "3", "conduct": "1",
        "reports": "1",
    }  # fmt: skip
    assert {name: rows_at(client, link) for name, (_count, link) in found.items()} == {
        name: int(count) for name, (count, _link) in found.items()
    }


def test_every_link_of_the_charts_leads_to_as_many_alerts_as_it_says() -> None:
    lin, zhou = make_officer(), make_officer("zhou")
    make_work(lin, zhou)
    make_disposed("D1", AlertStatus.CONFIRMED, "C01")
    make_disposed("D2", AlertStatus.FALSE_POSITIVE, "F04", rule_ids=["RISK-001", "RISK-002"])
    make_disposed("D3", AlertStatus.FALSE_POSITIVE, "F04", rule_ids=["RISK-002"])
    make_disposed("D4", AlertStatus.CLOSED, "K03", alert_type=AlertType.REPORT, rule_ids=["RISK-003"])
    client = make_client(lin)
    text = read(client)
    charts = text[text.index('id="board-charts"') : text.index('class="x-apps"')]
    said = re.findall(r'<a href="(/admin/risk/riskalert/[^"]+)">(?:<span>.*?</span><b>)?([\d,]+)<', charts)
    assert len(said) > 60
    wrong = {unescape(link): count for link, count in said if rows_at(client, unescape(link)) != int(count)}
    assert wrong == {}


def test_the_rate_is_of_what_was_judged_and_a_violation_stays_one() -> None:
    make_disposed("D1", AlertStatus.CONFIRMED, "C01")
    make_disposed("D2", AlertStatus.CLOSED, "K05", confirmed_at=now())  # its follow-up is done
    make_disposed("D3", AlertStatus.CLOSED, "K03")  # neither
    make_disposed("D4", AlertStatus.FALSE_POSITIVE, "F01")
    line = next(one for one in board.rule_lines(figures(tenant="default")) if one.rule == "RISK-001")
    assert (line.false, line.judged, line.rate) == (1, 3, 33)
    assert "1 of 3 that were judged" in read(make_client(make_officer()))


def test_nothing_to_judge_is_no_rate_of_nought() -> None:
    assert all(line.rate is None for line in board.rule_lines(figures(tenant="default")))


# --- what is past is added up -----------------------------------------------------------------------------------------


def make_history() -> None:
    """Over some 35 days, one alert opened at noon of each business day and disposed of an hour later."""
    today = business_date(now())
    for days in range(1, 36):
        noon = business_day_bounds(today - timedelta(days=days))[0] + timedelta(hours=12)
        make_disposed(f"C{days}", AlertStatus.CLOSED, "K03", disposed_at=noon + timedelta(hours=1), opened_at=noon)


def test_what_was_counted_and_what_was_not_add_up_to_the_same() -> None:
    make_history()
    make_alert("C100", opened_at=now() - timedelta(seconds=1))
    before = figures(tenant="default")
    assert sum(before.opened.values()) == 30
    assert sum(before.disposed.values()) == 29
    assert sum(count for _begins, count in before.hours) in (1, 2)  # yesterday's noon may lie in the 24 hours
    assert tally(tenant="default") >= 29
    after = figures(tenant="default")
    assert (after.opened, after.disposed, after.hours) == (before.opened, before.disposed, before.hours)
    assert before.whole_since is None
    assert tally(tenant="default") == 0  # nothing is counted twice


def test_a_reopened_alert_leaves_its_day_when_that_is_counted_again() -> None:
    make_history()
    tally(tenant="default")
    from risk.alerts.models import RiskAlert

    RiskAlert.objects.filter(customer_id="C5").update(status=AlertStatus.IN_REVIEW, disposed_at=None)
    assert sum(figures(tenant="default").disposed.values()) == 29
    AlertTally.objects.update(counted_at=now() - timedelta(days=1))
    while tally(tenant="default"):
        pass
    assert sum(figures(tenant="default").disposed.values()) == 28


def test_more_than_is_read_at_once_is_said_not_to_be_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "LIVE_ROWS", 10)
    make_history()
    assert figures(tenant="default").whole_since is not None
    text = read(make_client(make_officer()))
    assert "Counted in full since" in text
    tally(tenant="default")
    assert figures(tenant="default").whole_since is None
    assert "Counted in full since" not in read(make_client(make_officer("zhou")))


# --- who sees what ----------------------------------------------------------------------------------------------------


def test_a_manager_sees_the_figures_and_nothing_that_is_theirs_to_do() -> None:
    make_work(make_officer(), make_officer("zhou"))
    found = tiles(read(make_client(make_manager())))
    assert "mine" not in found
    assert (found["review"][0], found["returned"][0], found["woken"][0]) == ("2", "1", "1")


def test_an_operator_sees_faults_and_what_is_on_its_way_and_no_case() -> None:
    make_work(make_officer(), make_officer("zhou"))
    make_alert("C50", alert_type=AlertType.DATA_QUALITY, rule_ids=["DATA-QUALITY"], subtypes=["missing_price"])
    AlertOutbox.objects.create(tenant="default", alert_id="x", kind="update", created_at=now() - timedelta(minutes=5))
    text = read(make_client(make_operator()))
    assert {name: count for name, (count, _link) in tiles(text).items()} == {"faults": "1"}
    assert "1 events wait, the oldest for 5 min" in text
    assert "Messages to the database" in text
    assert "Dead letters" in text
    assert "By rule" not in text
    assert "Most urgent" not in text


def test_an_auditor_sees_how_the_log_stands_and_no_alert() -> None:
    make_work(make_officer(), make_officer("zhou"))
    text = read(make_client(make_auditor()))
    assert "Audit seals" in text
    assert "Live feed" not in text
    assert tiles(text) == {}
    assert make_client(make_auditor("bo")).get(FIGURES).status_code == 200


def test_another_tenant_has_figures_of_its_own() -> None:
    make_work(make_officer(), make_officer("zhou"))
    AlertOutbox.objects.create(tenant="default", alert_id="x", kind="update", created_at=now() - timedelta(minutes=5))
    make_history()
    tally(tenant="default")
    text = read(make_client(make_officer("east", tenant="east")))
    assert {count for count, _link in tiles(text).values()} == {"0"}
    assert "everything is sent" in text
    assert "Nothing was disposed of in this time." in text


def test_who_has_no_figures_is_refused_them() -> None:
    assert make_client(make_person("nobody")).get(FIGURES).status_code == 403
    assert Client().get(FIGURES).status_code == 302
    assert "board-charts" not in make_client(make_person("someone")).get("/admin/").content.decode()


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_the_figures_cost_the_same_however_much_there_is() -> None:
    lin, zhou = make_officer(), make_officer("zhou")
    client = make_client(lin)
    read(client)

    def cost() -> int:
        board.forget()
        with CaptureQueriesContext(connection) as queries:
            assert client.get(FIGURES).status_code == 200
        return len(queries)

    few = cost()
    make_work(lin, zhou)
    make_history()
    many = cost()
    tally(tenant="default")
    assert (many, cost()) == (few, few)
    with CaptureQueriesContext(connection) as kept:  # a moment later: what all of the tenant see is not read again
        client.get(FIGURES)
    assert len(kept) == few - 5


def test_the_figures_come_alone_as_the_page_has_them() -> None:
    make_work(make_officer(), make_officer("zhou"))
    client = make_client(make_officer("bo"))
    alone, page = read(client, FIGURES), read(client)
    assert "<html" not in alone
    start = alone[alone.index('<div class="x-board"') :].partition(">")[2]
    assert start.partition("<dl")[0] in page


def test_the_overview_speaks_chinese_and_needs_no_script_of_its_own() -> None:
    make_work(make_officer(), make_officer("zhou"))
    text = read(make_client(make_officer("bo"), language="zh-hans"))
    assert "<svg" in text
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=\"", text)


# --- the pages around it ----------------------------------------------------------------------------------------------


def test_where_g_and_a_letter_lead_is_what_a_person_may_open() -> None:
    def letters(person: Any) -> set[str]:
        return set(re.findall(r'data-go="(\w)"', make_client(person).get("/admin/").content.decode()))

    assert letters(make_officer()) == {"d", "q", "c", "r"}
    assert letters(make_operator()) == {"d", "q", "a", "k", "p"}
    assert letters(make_auditor()) == {"d", "r", "a"}


def test_the_language_can_be_changed_where_nobody_is_logged_in() -> None:
    client = make_client(make_officer())
    for text in (Client().get("/admin/login/"), client.post("/admin/logout/")):
        page = text.content.decode()
        assert 'class="x-language"' in page
        assert "theme-toggle" in page


def test_a_filter_by_what_is_over_says_so_in_words() -> None:
    text = make_client(make_operator()).get("/admin/guard/actorblock/").content.decode()
    assert "By state" in text
    assert "in force" in text
    assert "Not empty" not in text
