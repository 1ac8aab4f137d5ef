"""An officer's day in a real browser, against a whole running installation."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.conftest import LogIn
from tests.stack import LiveStack, until

pytestmark = [pytest.mark.browser, pytest.mark.slow]
REASON = "The papers were asked for and are not there; the branch confirms it."

_MAKE = """
import uuid
from config.base.clock import now
from django.db import transaction
from risk.alerts.models import RiskAlert, RiskAlertHit
from risk.feed.events import tell_alert
for score in {scores!r}:
    customer = "C" + uuid.uuid4().hex[:8]
    with transaction.atomic():
        alert = RiskAlert.objects.create(customer_id=customer, advisor_id="ADV001", score=score,
            subtypes=["suitability_mismatch"], rule_ids=["RISK-001"], trace_id="a" * 32)
        RiskAlertHit.objects.create(alert=alert, rule_id="RISK-001", rule_version=1, evidence_key="T@" + alert.pk,
            live_key="T@" + alert.pk, customer_id=customer, product_id="F0101", trade_id="T1", trade_version=1,
            occurred_at=now(), score=score, subtypes=["suitability_mismatch"],
            figures={{"product_risk_level": "R4", "tolerance_level": "C2", "solicited": True}})
        tell_alert(alert)
    print(alert.pk)
"""


def fire(stack: LiveStack, *scores: int) -> list[str]:
    """New alerts, through the outbox to every open page. Returns their ids."""
    return stack.shell(_MAKE.format(scores=scores or (79,))).splitlines()[-max(1, len(scores)) :]


def row(page: Any, alert_id: str) -> Any:
    return page.locator(f'#queue tr[data-id="{alert_id}"]')


def open_alert(page: Any, alert_id: str) -> None:
    page.goto(f"/admin/risk/riskalert/{alert_id}/change/")
    page.wait_for_selector("#feed-state[data-state=live]")


def write_disposition(page: Any, *, outcome: str = "confirmed", code: str = "C01", text: str = REASON) -> None:
    page.check(f"input[name=status][value={outcome}]", force=True)
    page.select_option("select[name=code]", code)
    page.fill("textarea#text", text)


def test_an_alert_appears_without_a_reload_is_opened_and_disposed_of(live_stack: LiveStack, log_in: LogIn) -> None:
    page = log_in("lin")
    page.evaluate("window.sameDocument = true")
    [alert_id] = fire(live_stack)
    row(page, alert_id).wait_for()
    assert page.evaluate("window.sameDocument") is True
    assert page.locator("#queue tbody tr").first.get_attribute("data-id") == alert_id
    assert "is-new" in (row(page, alert_id).get_attribute("class") or "")
    assert "Sold F0101 of risk level R4" in row(page, alert_id).inner_text()
    assert page.locator("#feed-count").inner_text() == "1"
    assert page.title().startswith("(1) ")
    assert "score 79" in page.locator("#toasts").inner_text()
    row(page, alert_id).locator("a").click()
    page.wait_for_selector("#dispose")
    until(lambda: page.locator("#dispose button.x-primary").is_disabled(), what="nothing to send yet")
    write_disposition(page, text="Too short.")
    assert "10 of at least 30" in page.locator("#text-count").inner_text()
    assert page.locator("#dispose button.x-primary").is_disabled()
    page.fill("textarea#text", REASON)
    page.press("textarea#text", "Control+Enter")
    page.wait_for_selector("#alert-status.confirmed")
    assert live_stack.query("SELECT status FROM risk_alert WHERE alert_id = %s", [alert_id]) == [("confirmed",)]
    told = live_stack.query(
        "SELECT event_type, decision FROM audit_log WHERE object_id = %s AND actor_id = 'lin' ORDER BY id", [alert_id]
    )
    assert ("alert_status", "confirmed") in told
    assert ("alert_viewed", "viewed") in told


def test_what_one_officer_does_shows_on_the_others_screen(live_stack: LiveStack, log_in: LogIn) -> None:
    [alert_id] = fire(live_stack)
    lin, zhou = log_in("lin"), log_in("zhou")
    row(zhou, alert_id).wait_for()
    open_alert(lin, alert_id)
    lin.click("form[action$='/claim/'] button")
    until(lambda: "lin" in row(zhou, alert_id).locator(".holder").inner_text(), what="the assignee on Zhou's screen")
    assert row(zhou, alert_id).locator(".state").inner_text() == "in review"


def test_who_comes_second_is_told_who_won(live_stack: LiveStack, log_in: LogIn) -> None:
    [alert_id] = fire(live_stack)
    lin, zhou = log_in("lin"), log_in("zhou")
    for page in (lin, zhou):
        open_alert(page, alert_id)
        write_disposition(page)
    zhou.fill("textarea#text", "Zhou sees it otherwise. " + REASON)
    lin.click("#dispose button.x-primary")
    lin.wait_for_selector("#alert-status.confirmed")
    told = re.compile(r"lin disposed of this alert at [-\d: ]+: confirmed")
    until(lambda: told.search(zhou.locator("#changed").inner_text()), what="Zhou is told")
    zhou.click("#dispose button.x-primary")
    zhou.wait_for_selector("#conflict")
    assert re.search(r"lin disposed of this alert at \d{4}-\d\d-\d\d", zhou.locator("#conflict").inner_text())
    assert zhou.locator("#alert-status.confirmed").count() == 1
    assert "Zhou sees it otherwise." in zhou.locator("textarea#text").input_value()


def test_an_open_page_is_told_what_became_of_its_alert(live_stack: LiveStack, log_in: LogIn) -> None:
    [alert_id] = fire(live_stack)
    lin, zhou = log_in("lin"), log_in("zhou", language="zh")
    open_alert(lin, alert_id)
    open_alert(zhou, alert_id)
    told = zhou.locator("#changed")
    lin.click("form[action$='/claim/'] button")
    at = r" 已于 [-\d]+ [:\d]+ "
    until(lambda: re.search(f"lin{at}领取该预警。", told.inner_text()), what="the claim is told")
    lin.click("text=Release to the queue")
    until(lambda: re.search(f"lin{at}将该预警退回队列。", told.inner_text()), what="the release is told")
    write_disposition(lin, outcome="false_positive", code="F04")
    lin.click("#dispose button.x-primary")
    until(lambda: re.search(f"lin{at}处置该预警：误报。", told.inner_text()), what="the disposition is told")
    # Closed to Zhou now: what Zhou had begun to write is kept, and says so truly.
    write_disposition(zhou, text="周的看法不同，理由写在这里，" + REASON)
    zhou.click("#dispose button.x-primary")
    zhou.wait_for_selector("#conflict")
    assert zhou.locator("#dispose").count() == 0
    assert zhou.locator("#written").input_value().startswith("周的看法不同")
    assert zhou.locator("#written").get_attribute("readonly") is not None
    assert "未保存" in zhou.locator("#conflict").inner_text()


def test_a_manager_looks_and_cannot_touch(live_stack: LiveStack, log_in: LogIn) -> None:
    page = log_in("meng")
    [alert_id] = fire(live_stack)
    row(page, alert_id).wait_for()
    open_alert(page, alert_id)
    assert page.locator("#content form").count() == 0
    answer = page.evaluate(
        """async (id) => (await fetch(`/admin/risk/riskalert/${id}/claim/`, {method: "POST", body: new URLSearchParams({
            version: 1, csrfmiddlewaretoken: document.querySelector("[name=csrfmiddlewaretoken]").value})})).status""",
        alert_id,
    )
    assert answer == 403


def test_the_web_process_dies_and_the_page_heals(live_stack: LiveStack, log_in: LogIn) -> None:
    page = log_in("lin")
    live_stack.kill("web")
    page.wait_for_selector("#feed-state[data-state=reconnecting]")
    [alert_id] = fire(live_stack)
    live_stack.start("web")
    live_stack.wait_until_serving()
    page.wait_for_selector("#feed-state[data-state=live]", timeout=40_000)
    row(page, alert_id).wait_for()


def test_the_language_is_switched_and_stays(live_stack: LiveStack, log_in: LogIn) -> None:
    page = log_in("lin")
    page.click("button[value=zh-hans]")
    page.wait_for_selector("html[lang=zh-hans]")
    page.wait_for_selector("#feed-state[data-state=live]")
    assert page.locator("#feed-state").inner_text().strip() == "实时"
    page.goto("/admin/")
    assert page.locator("h1").first.inner_text() == "总览"
    [alert_id] = fire(live_stack)
    row(page, alert_id).wait_for()
    assert "经代理人主动推介" in row(page, alert_id).inner_text()
    assert "新预警" in page.locator("#toasts").inner_text()
    page.click("button[value=en]")
    page.wait_for_selector("html[lang=en]")


def test_no_page_scrolls_sideways_at_any_width_in_either_language(live_stack: LiveStack, log_in: LogIn) -> None:
    [alert_id] = fire(live_stack)
    for language in ("en", "zh"):
        page = log_in("lin", language=language)
        for address in ("/admin/", "/admin/risk/riskalert/?tab=all", f"/admin/risk/riskalert/{alert_id}/change/"):
            page.goto(address)
            for width in (360, 390, 768, 1024, 1280, 1920):
                page.set_viewport_size({"width": width, "height": 860})
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, f"{address} in {language} is {wide} px wide at {width}"


_CUT = """() => [...document.querySelectorAll(".x-nav a, .x-tabs a, #changelist .actions button, .object-tools a")]
    .filter((item) => { const box = item.getBoundingClientRect(); return box.left < 0 || box.right > innerWidth; })
    .map((item) => item.textContent)"""
# Cells in which a text of one word stands on more lines than one.
_BROKEN = """() => { const broken = [];
    for (const cell of document.querySelectorAll("#result_list td, #result_list th")) {
        const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
        for (let text = texts.nextNode(); text; text = texts.nextNode()) {
            if (!/^[^\\s-]{1,24}$/.test(text.data.trim())) continue;
            const line = document.createRange();
            line.selectNodeContents(text);
            if (new Set([...line.getClientRects()].map((box) => Math.round(box.top))).size > 1) broken.push(text.data);
        }
    }
    return broken; }"""


@pytest.mark.parametrize("language", ["en", "zh"])
def test_tables_stay_whole_on_a_narrow_screen_and_say_that_they_scroll(
    live_stack: LiveStack, log_in: LogIn, language: str
) -> None:
    fire(live_stack)
    live_stack.manage("agent_key", "--agent", "risk")
    page = log_in("boss", language=language, width=390)
    tables = ("guard/auditlog", "guard/agentprincipal", "memory/corecustomer", "memory/coretrade", "auth/user")
    for address in ("risk/riskalert", *tables):
        page.goto(f"/admin/{address}/")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
        assert page.evaluate(_CUT) == [], address
        assert page.evaluate(_BROKEN) == [], address
    page.goto("/admin/guard/auditlog/")
    results = page.locator("#changelist .results")
    assert results.get_attribute("data-more") == "end"
    results.evaluate("box => { box.scrollLeft = box.scrollWidth }")
    until(lambda: results.get_attribute("data-more") == "start", what="the other edge fades")


def test_the_tiles_of_the_overview_fill_their_row(live_stack: LiveStack, log_in: LogIn) -> None:
    for name in ("lin", "meng"):
        page = log_in(name, width=1440)
        page.goto("/admin/")
        row, last = page.locator(".x-tiles").bounding_box(), page.locator(".x-tile").last.bounding_box()
        assert abs(row["x"] + row["width"] - last["x"] - last["width"]) < 2


def test_the_queue_is_walked_with_keys(live_stack: LiveStack, log_in: LogIn) -> None:
    fire(live_stack)
    page = log_in("lin")
    page.keyboard.press("j")
    assert page.locator("#queue tr[aria-selected=true]").count() == 1
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "queue-search"
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("#alert")
