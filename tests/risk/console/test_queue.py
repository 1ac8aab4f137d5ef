"""The queue: what it holds, for whom, and how it answers the live page."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse

from config.base.clock import now
from risk.alerts import services
from risk.alerts.models import AlertStatus, FeedHead, RiskAlert
from risk.console import queue
from risk.console.counting import capped
from tests.risk.console.make import (
    make_alert,
    make_auditor,
    make_client,
    make_customer,
    make_hit,
    make_manager,
    make_officer,
    seen,
)

pytestmark = pytest.mark.django_db
QUEUE = "/admin/risk/riskalert/"
ROWS = "/admin/risk/riskalert/rows/"


def due(*, hours: float) -> dict[str, Any]:
    """Limits of an alert that is to be claimed in so many hours."""
    return {"claim_due_at": now() + timedelta(hours=hours), "dispose_due_at": now() + timedelta(hours=hours + 9)}


def test_an_officer_sees_the_most_urgent_first_with_a_sentence_and_a_masked_customer() -> None:
    later, sooner = make_alert("C00017", **due(hours=9)), make_alert("C00018", score=41, **due(hours=1))
    page = make_client(make_officer()).get(QUEUE)
    text = page.content.decode()
    assert text.index(sooner.pk) < text.index(later.pk)
    assert "Sold F0101 of risk level R4 to an ordinary investor assessed C2" in text
    assert "C0***7" in text
    assert "C00017" not in text


def test_pages_both_ways_hold_each_alert_once_in_the_order_of_their_due() -> None:
    client = make_client(make_officer())
    made = [make_alert(f"C{n:05d}", **due(hours=n % 7)) for n in range(120)]
    forth, address, pages = [], QUEUE, []
    while address:
        page = client.get(address)
        pages.append([row["alert"].pk for row in page.context["rows"]])
        forth += [row["alert"] for row in page.context["rows"]]
        assert page.context["page_number"] == len(pages)
        address = QUEUE + page.context["next_link"] if page.context["next_link"] else ""
    assert {alert.pk for alert in forth} == {alert.pk for alert in made}
    keys = [(alert.claim_due_at, alert.pk) for alert in forth]
    assert keys == sorted(keys)
    assert [len(one) for one in pages] == [50, 50, 20]
    back = []
    while page.context["previous_link"]:
        page = client.get(QUEUE + page.context["previous_link"])
        back.append([row["alert"].pk for row in page.context["rows"]])
    assert back == [pages[1], pages[0]]


def test_a_page_is_gone_to_by_its_number_and_the_end_without_it() -> None:
    client = make_client(make_officer())
    for number in range(120):
        make_alert(f"C{number:05d}", **due(hours=number))
    walked = client.get(QUEUE + client.get(QUEUE).context["next_link"])
    jumped = client.get(QUEUE, {"page": 2})
    ids = [row["alert"].pk for row in walked.context["rows"]]
    assert [row["alert"].pk for row in jumped.context["rows"]] == ids
    assert jumped.context["page_number"] == 2
    assert QUEUE + jumped.context["previous_link"] == f"{QUEUE}?tab=customers"
    end = client.get(QUEUE, {"before": "~"})
    assert len(end.context["rows"]) == 50
    assert end.context["rows"][-1]["alert"].customer_id == "C00119"
    assert not end.context["next_link"]
    beyond = client.get(QUEUE, {"page": 9})
    assert not beyond.context["rows"]
    assert "There is no such page." in beyond.content.decode()
    assert client.get(QUEUE + beyond.context["previous_link"]).context["rows"]


def test_tabs_hold_what_they_say() -> None:
    lin, zhou = make_officer("lin"), make_officer("zhou")
    waiting, mine, aside, done, proposed = (make_alert(f"C0001{n}", **due(hours=4)) for n in range(5))
    report = make_alert("C00020", alert_type="report", rule_ids=["RISK-003"])
    conduct = make_alert("", alert_type="pattern", rule_ids=["RISK-008"])
    services.claim(alert_id=mine.pk, officer=lin)
    services.snooze(
        alert_id=aside.pk, officer=lin, version=1, until=now() + timedelta(hours=1), text="waits for the branch"
    )
    services.dispose(
        alert_id=done.pk, officer=zhou, **seen(done), to_status="closed", code="K03", text="duplicate " * 4,
        quiet_days=7,
    )  # fmt: skip
    services.escalate(
        alert_id=proposed.pk, officer=zhou, **seen(proposed), to_status="closed", code="K03", text="duplicate " * 4
    )
    client = make_client(lin)

    def held(**query: str) -> set[str]:
        return {row["alert"].pk for row in client.get(QUEUE, query).context["rows"]}

    assert held() == {waiting.pk, mine.pk, proposed.pk}
    assert held(tab="conduct") == {conduct.pk}
    assert held(tab="reports") == {report.pk}
    assert held(tab="review") == {proposed.pk}
    assert held(tab="quiet") == {aside.pk}
    assert held(tab="quiet", state="period") == {done.pk}
    assert held(state="pending") == {waiting.pk}
    assert held(state="in_review") == {mine.pk}
    assert held(state="done") == held(state="closed") == {done.pk}
    assert held(assignee="me") == held(assignee="lin") == {mine.pk}
    assert held(assignee="none") == {waiting.pk, proposed.pk} - {proposed.pk}
    assert held(assignee="nobody of this name") == set()
    counts = {tab["name"]: tab["count"] for tab in client.get(QUEUE).context["tabs"]}
    assert counts == {"customers": "3", "conduct": "1", "reports": "1", "review": "1", "quiet": "1"}


FIELDS: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"level": "LEVEL_2"}, {"escalation_level": "LEVEL_2"}),
    ({"rule": "RISK-002"}, {"rule_ids": ["RISK-001", "RISK-002"]}),
    ({"subtype": "concentration"}, {"subtypes": ["suitability_mismatch", "concentration"]}),
    ({"min": "90"}, {"score": 90}),
    ({"min": "20", "max": "30"}, {"score": 30}),
    ({"age": "7d+"}, {"opened_at": -timedelta(days=8)}),
    ({"customer": "C00077"}, {"customer_id": "C00077"}),
    ({"advisor": "ADV777"}, {"advisor_id": "ADV777"}),
    ({"due": "overdue"}, {"claim_due_at": -timedelta(minutes=1)}),
    ({"due": "2h"}, {"claim_due_at": timedelta(minutes=90)}),
    ({"due": "later"}, {"claim_due_at": timedelta(days=2)}),
]


@pytest.mark.parametrize(("query", "fields"), FIELDS)
def test_each_filter_finds_its_own_and_keeps_it_when_another_is_added(
    query: dict[str, str], fields: dict[str, Any]
) -> None:
    wanted = {name: now() + value if isinstance(value, timedelta) else value for name, value in fields.items()}
    plain = {"score": 50, "claim_due_at": now() + timedelta(hours=26), "dispose_due_at": now() + timedelta(hours=50)}
    customer = wanted.pop("customer_id", "C00017")
    alert = make_alert(customer, **{**plain, **wanted})
    for number in range(3):
        make_alert(f"C1000{number}", **plain)
    client = make_client(make_officer())
    if query != {"due": "later"}:  # which the others are, too
        assert [row["alert"].pk for row in client.get(QUEUE, query).context["rows"]] == [alert.pk]
        assert client.get(QUEUE, query).context["found"] == "1"
    for more in ({"rule": "RISK-001"}, {"min": "1"}, {"assignee": "none"}, {"state": "pending"}):
        assert alert.pk in [row["alert"].pk for row in client.get(QUEUE, {**more, **query}).context["rows"]], more
    assert not client.get(QUEUE, {**query, "state": "done"}).context["rows"]


def test_what_is_disposed_of_comes_newest_first() -> None:
    old, new = (
        make_alert(f"C0001{n}", status=AlertStatus.CLOSED, disposed_at=now() - timedelta(days=9 - n)) for n in range(2)
    )
    rows = make_client(make_officer()).get(QUEUE, {"state": "done"}).context["rows"]
    assert [row["alert"].pk for row in rows] == [new.pk, old.pk]


def test_a_hit_that_came_since_i_looked_is_counted_for_me_alone() -> None:
    alert = make_alert()
    lin, zhou = make_client(make_officer("lin")), make_client(make_officer("zhou"))
    lin.get(f"{QUEUE}{alert.pk}/change/")
    make_hit(alert, number=2, alert_version=2)
    make_hit(alert, number=3, alert_version=None)
    assert lin.get(QUEUE).context["rows"][0]["new_hits"] == 2
    assert zhou.get(QUEUE).context["rows"][0]["new_hits"] == 0
    RiskAlert.objects.filter(pk=alert.pk).update(version=2)
    lin.get(f"{QUEUE}{alert.pk}/change/")
    assert lin.get(QUEUE).context["rows"][0]["new_hits"] == 0


def test_columns_are_chosen_and_stay() -> None:
    make_customer("C00017")
    make_alert()
    client = make_client(make_officer())
    text = client.get(QUEUE, {"col": ["branch", "due"]}).content.decode()
    assert re.search(r'<td class="channel">branch</td>', text)
    assert 'class="holder' not in text
    assert '<td class="channel">' in client.get(QUEUE).content.decode()
    assert 'class="holder' in client.get(QUEUE, {"cols": "assignee"}).content.decode()


def test_due_is_told_and_the_page_knows_the_servers_clock() -> None:
    make_alert("C00017", **due(hours=-3))
    make_alert("C00018", **due(hours=1))
    text = make_client(make_officer()).get(QUEUE).content.decode()
    assert re.search(r'class="chip late"[^>]*>3\xa0hours over<', text)
    assert re.search(r'class="chip soon"[^>]*>59\xa0minutes left<', text)
    assert re.search(r'data-clock="20\d\d-', text)


def test_counts_stop_at_a_thousand() -> None:
    assert [capped(count) for count in (7, 1000, 1001)] == ["7", "1,000", "1,000+"]


def test_a_manager_sees_the_queue_and_nothing_to_act_with() -> None:
    alert = make_alert()
    text = make_client(make_manager()).get(QUEUE).content.decode()
    assert alert.pk in text
    for control in ('name="pick"', 'name="act"', 'id="queue-next"'):
        assert control not in text
    assert "claimed by me" not in make_client(make_manager("mao")).get("/admin/").content.decode()


def test_search_is_exact_and_looks_in_every_tab() -> None:
    make_customer("C00017")
    alert = make_alert("C00017", status=AlertStatus.CLOSED, trace_id="b" * 32)
    make_alert("C00018")
    client = make_client(make_officer())
    for words in (alert.pk, "C00017", "T-C00017-1", "b" * 32):
        assert [row["alert"].pk for row in client.get(QUEUE, {"q": words}).context["rows"]] == [alert.pk], words
    for words in ("C0001", "c00017", "%", "' OR 1=1 --"):
        assert not client.get(QUEUE, {"q": words}).context["rows"], words
    assert client.get(QUEUE, {"q": "\x00"}).status_code == 400


@pytest.mark.parametrize(
    "query",
    [
        "tab=nope",
        "after=x",
        "after=99~",
        "after=9999999999999999999~a",
        "before=x",
        "page=0",
        "page=x",
        "page=999999999",
        "min=900&max=-1",
        "level=9",
        "due=x",
        "age=x",
        "state=x",
        "cols=;",
        "col=x",
        "before=~&after=~",
    ],
)
def test_an_address_that_makes_no_sense_is_a_page(query: str) -> None:
    make_alert()
    assert make_client(make_officer()).get(f"{QUEUE}?{query}").status_code == 200
    assert make_client(make_officer("zhou")).get(f"{QUEUE}?sort=opened&{query}").status_code == 200


def test_another_tenants_alerts_do_not_exist() -> None:
    alert = make_alert(tenant="east")
    client = make_client(make_officer())
    assert alert.pk not in client.get(QUEUE, {"tab": "all"}).content.decode()
    assert not client.get(QUEUE, {"q": alert.pk}).context["rows"]
    assert client.get(ROWS, {"id": alert.pk}).json()["rows"] == []
    assert client.get(reverse("admin:risk_riskalert_change", args=[alert.pk])).status_code == 404
    for act in ("claim", "release", "dispose", "reopen", "note"):
        assert client.post(f"{QUEUE}{alert.pk}/{act}/", {"version": 1, "text": "x"}).status_code == 404
    east = make_client(make_officer("dong", tenant="east"))
    assert [row["alert"].pk for row in east.get(QUEUE).context["rows"]] == [alert.pk]


def test_the_live_page_gets_rows_with_whether_they_belong() -> None:
    lin = make_officer()
    alert, other = make_alert("C00017"), make_alert("C00018")
    services.claim(alert_id=other.pk, officer=lin)
    answer = make_client(lin).get(ROWS, {"id": [other.pk, alert.pk, "unknown"], "assignee": "none"}).json()
    assert [(row["alert_id"], row["matches"]) for row in answer["rows"]] == [(other.pk, False), (alert.pk, True)]
    assert f'data-id="{alert.pk}"' in answer["rows"][1]["html"]
    assert answer["counts"] == {"customers": "2", "conduct": "0", "reports": "0", "review": "0", "quiet": "0"}


def test_the_page_names_the_seq_from_which_its_socket_goes_on() -> None:
    FeedHead.objects.create(tenant="default", seq=41)
    assert 'data-seq="41"' in make_client(make_officer()).get(QUEUE).content.decode()


def test_words_from_outside_are_escaped() -> None:
    alert = make_alert("C<b>17", subtypes=["<script>alert(1)</script>"])
    client = make_client(make_officer())
    for page in (QUEUE, f"{QUEUE}{alert.pk}/change/", f"{ROWS}?id={alert.pk}"):
        assert "<script>alert(1)" not in client.get(page).content.decode()
    assert 'value="&quot;&gt;&lt;script&gt;"' in client.get(QUEUE, {"q": '"><script>'}).content.decode()


def test_who_may_not_see_alerts_gets_no_page_and_no_feed() -> None:
    make_alert()
    client = make_client(make_auditor())
    assert client.get(QUEUE).status_code == 403
    assert client.get(ROWS).status_code == 403
    assert 'id="feed"' not in client.get("/admin/").content.decode()
    from django.test import Client

    assert Client().get(QUEUE).status_code == 302


def test_a_manager_looks_at_the_queue() -> None:
    alert = make_alert()
    assert alert.pk in make_client(make_manager()).get(QUEUE).content.decode()


def test_the_queue_speaks_chinese() -> None:
    make_alert()
    text = make_client(make_officer(), language="zh-hans").get(QUEUE).content.decode()
    assert 'lang="zh-hans"' in text
    for words in (
        "预警",
        "待处理",
        "经代理人主动推介，向风险承受能力为 C2 的普通投资者销售了风险等级 R4 的产品 F0101。",
    ):
        assert words in text


def test_pages_need_no_script_or_style_of_their_own() -> None:
    """A strict Content-Security-Policy can be set: no inline script, no inline style, no on... attributes."""
    import re

    alert = make_alert()
    client = make_client(make_officer())
    for address in (QUEUE, f"{QUEUE}{alert.pk}/change/", "/admin/"):
        text = client.get(address).content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)", text), address
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=\"", text), address
        assert not re.search(r'(?:src|href)="(?:https?:)?//', text), address


def test_every_index_that_a_view_names_is_there() -> None:
    """A name that is none is an error of the database, in MariaDB alone."""
    there = {index.name for index in RiskAlert._meta.indexes}
    named = set(re.findall(r'"(risk_alert_[a-z_]+)"', inspect.getsource(queue)))
    assert len(named) == 12
    assert named <= there


def test_sets_of_rules_are_found_in_whatever_order_they_arose() -> None:
    sets = [["RISK-002", "RISK-001"], ["RISK-001", "RISK-007"], ["RISK-007"], ["RISK-004", "RISK-002", "RISK-001"]]
    for number, rules in enumerate(sets):
        make_alert(f"C{number}", rule_ids=rules)
        make_alert(f"C9{number}", rule_ids=["RISK-006", *rules], tenant="east")
    client = make_client(make_officer())

    def found(rule: str) -> list[list[str]]:
        return sorted(row["alert"].rule_ids for row in client.get(QUEUE, {"rule": rule}).context["rows"])

    assert found("RISK-001") == sorted([sets[0], sets[1], sets[3]])
    assert found("RISK-007") == sorted([sets[1], sets[2]])
    assert found("RISK-006") == []
    many = [[f"RISK-{a:03d}", f"RISK-{b:03d}", "RISK-008"] for a in range(1, 8) for b in range(1, 8) if a != b]
    for number, rules in enumerate(many):
        make_alert(f"D{number}", rule_ids=rules)
    assert len(found("RISK-008")) == len(many)
