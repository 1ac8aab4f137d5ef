"""The queue: what it holds, for whom, and how it answers the live page."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse

from config.base.clock import now
from risk.alerts import services
from risk.alerts.models import AlertStatus, FeedHead
from tests.risk.console.make import (
    make_alert,
    make_auditor,
    make_client,
    make_customer,
    make_manager,
    make_officer,
    seen,
)

pytestmark = pytest.mark.django_db
QUEUE = "/admin/risk/riskalert/"
ROWS = "/admin/risk/riskalert/rows/"


def test_an_officer_sees_the_worst_first_with_a_sentence_and_a_masked_customer() -> None:
    mild, grave = make_alert("C00017", score=60), make_alert("C00018", score=95)
    page = make_client(make_officer()).get(QUEUE)
    text = page.content.decode()
    assert text.index(grave.pk) < text.index(mild.pk)
    assert "Sold F0101 of risk level R4 to an ordinary investor assessed C2" in text
    assert "C0***7" in text
    assert "C00017" not in text


def test_newest_first_is_an_order_too_and_pages_hold_each_alert_once() -> None:
    client = make_client(make_officer())
    made = [make_alert(f"C{n:05d}", score=50 + n % 3, opened_at=now() - timedelta(minutes=n % 7)) for n in range(120)]
    for sort in ("score", "opened"):
        address, seen = f"{QUEUE}?sort={sort}", []
        while address:
            page = client.get(address)
            seen += [row["alert"] for row in page.context["rows"]]
            address = QUEUE + page.context["next_link"] if page.context["next_link"] else ""
        assert len(seen) == 120
        assert {alert.pk for alert in seen} == {alert.pk for alert in made}
        keys = [(alert.score if sort == "score" else alert.opened_at, alert.pk) for alert in seen]
        assert keys == sorted(keys, reverse=True)


def test_tabs_hold_what_they_say() -> None:
    lin, zhou = make_officer("lin"), make_officer("zhou")
    waiting, mine, theirs, done = (make_alert(f"C0001{n}") for n in range(4))
    services.claim(alert_id=mine.pk, officer=lin)
    services.claim(alert_id=theirs.pk, officer=zhou)
    services.dispose(
        alert_id=done.pk, officer=zhou, **seen(done), to_status="closed", code="K03", text="duplicate " * 4
    )
    client = make_client(lin)

    def held(tab: str) -> set[str]:
        return {row["alert"].pk for row in client.get(QUEUE, {"tab": tab}).context["rows"]}

    assert held("open") == {waiting.pk, mine.pk, theirs.pk}
    assert held("mine") == {mine.pk}
    assert held("unassigned") == {waiting.pk}
    assert held("disposed") == {done.pk}
    assert held("all") == {waiting.pk, mine.pk, theirs.pk, done.pk}
    counts = {tab["name"]: tab["count"] for tab in client.get(QUEUE).context["tabs"]}
    assert counts == {"open": "3", "mine": "1", "unassigned": "1", "disposed": None, "all": None}


def test_what_no_rule_makes_and_nobody_does_is_not_offered() -> None:
    """Tabs, columns and choices come with the features that fill them."""
    make_alert()
    for person in (make_officer(), make_manager()):
        client = make_client(person)
        queue, overview = client.get(QUEUE), client.get("/admin/")
        assert [kind for kind, _label in queue.context["types"]] == [
            "event",
            "report",
            "pattern",
        ]  # that the rules make
        text = queue.content.decode() + overview.content.decode()
        for words in ("second review", ">Level<"):
            assert words not in text, words
        mine = person.username == "lin"
        assert ("tab=mine" in queue.content.decode(), "claimed by me" in overview.content.decode()) == (mine, mine)


def test_a_manager_who_asks_for_the_tab_of_claimed_alerts_gets_the_open_ones() -> None:
    alert = make_alert()
    assert [row["alert"].pk for row in make_client(make_manager()).get(QUEUE, {"tab": "mine"}).context["rows"]] == [
        alert.pk
    ]


def test_search_is_exact_and_looks_in_every_tab() -> None:
    make_customer("C00017")
    alert = make_alert("C00017", status=AlertStatus.CLOSED)
    make_alert("C00018")
    client = make_client(make_officer())
    for words in (alert.pk, "C00017", "T-C00017-1"):
        assert [row["alert"].pk for row in client.get(QUEUE, {"q": words}).context["rows"]] == [alert.pk], words
    for words in ("C0001", "c00017", "%", "' OR 1=1 --"):
        assert not client.get(QUEUE, {"q": words}).context["rows"], words
    assert client.get(QUEUE, {"q": "\x00"}).status_code == 400


@pytest.mark.parametrize(
    "query", ["tab=nope", "after=x", "after=99~", "after=9999999999999999999~a", "band=1", "sort=;"]
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
    answer = make_client(lin).get(ROWS, {"id": [other.pk, alert.pk, "unknown"], "tab": "unassigned"}).json()
    assert [(row["alert_id"], row["matches"]) for row in answer["rows"]] == [(other.pk, False), (alert.pk, True)]
    assert f'data-id="{alert.pk}"' in answer["rows"][1]["html"]
    assert answer["counts"] == {"open": "2", "mine": "1", "unassigned": "1"}


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
        "未结",
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
