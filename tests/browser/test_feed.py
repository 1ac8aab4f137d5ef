"""The live feed in a real browser: what is missed, what is told once, and what is no news."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.browser.conftest import LogIn
from tests.browser.test_console import _MAKE, open_alert, row
from tests.stack import PROJECT, LiveStack, until

pytestmark = [pytest.mark.browser, pytest.mark.slow]
# A page of the console that costs little.
LIGHT = "/admin/password_change/"
# Nobody looks at this tab; what would ring or stand on the desktop is counted (`counted`, from the test).
EARS = """
document.hasFocus = () => false;
window.AudioContext = class { constructor() { counted("sound", ""); throw new Error("no sound here"); } };
window.Notification = class {
  static permission = "granted";
  constructor(words, options) { counted("desktop", options.tag); }
};
new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach((node) => {
  if (node.classList && node.classList.contains("x-toast")) counted("toast", node.textContent);
}))).observe(document, { childList: true, subtree: true });
"""

# One process makes all alerts: to start one for each call takes longer than the call.
_AGAIN = f"""
import json, sys
for line in sys.stdin:
    exec({_MAKE!r}.format(scores=json.loads(line)), {{}})
    print("made", flush=True)
"""
Fire = Callable[..., list[str]]


@pytest.fixture(scope="module")
def fire(live_stack: LiveStack) -> Iterator[Fire]:
    """`fire(61, 62)`: new alerts of these scores, through the outbox to every open page. Returns their ids."""
    maker = subprocess.Popen(
        [sys.executable, "manage.py", "shell", "--no-imports", "-v", "0", "-c", _AGAIN],
        env={**os.environ, **live_stack.env}, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert maker.stdin is not None
    assert maker.stdout is not None

    def make(*scores: int) -> list[str]:
        print(json.dumps(scores or (79,)), file=maker.stdin, flush=True)
        lines = iter(maker.stdout.readline, "made\n")  # type: ignore[union-attr]
        return [line.strip() for line in lines if line.strip()]

    yield make
    maker.stdin.close()
    maker.wait(10)


def unread(page: Any) -> str:
    badge = page.locator("#feed-count")
    return badge.inner_text() if badge.is_visible() else ""


def told(page: Any) -> list[str]:
    texts: list[str] = page.locator(".x-toast").all_inner_texts()
    return texts


def shown_ids(page: Any) -> list[str]:
    ids: list[str] = page.locator("#queue tbody tr").evaluate_all("rows => rows.map(row => row.dataset.id)")
    return ids


def live_tab(context: Any, address: str = LIGHT) -> Any:
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#feed-state[data-state=live]")
    return page


def settle(page: Any, **settings: Any) -> None:
    """How this person wants to be called, through the list under the bell."""
    page.click("#feed-bell")
    page.click("#feed-panel summary")
    for name, value in settings.items():
        field = page.locator(f"[data-setting={name}]")
        if isinstance(value, bool):
            field.set_checked(value)
        else:
            field.select_option(value)
    page.keyboard.press("Escape")


def test_what_came_while_the_network_was_cut_is_there_once_each_in_order(
    live_stack: LiveStack, log_in: LogIn, fire: Fire
) -> None:
    page = log_in("lin")
    other = live_tab(page.context)
    page.context.set_offline(True)
    for tab in (page, other):
        tab.wait_for_selector("#feed-state[data-state=offline]")
    assert "no network" in page.locator("#feed-how").text_content()
    fired = fire(*range(60, 80))
    until(
        lambda: live_stack.query("SELECT COUNT(*) FROM alert_outbox WHERE published_at IS NULL") == [(0,)],
        what="all published",
    )
    assert not set(fired) & set(shown_ids(page))
    page.context.set_offline(False)
    row(page, fired[-1]).wait_for(timeout=15_000)
    assert shown_ids(page)[:20] == fired[::-1]
    assert Counter(shown_ids(page)).most_common(1)[0][1] == 1
    until(lambda: unread(page) == unread(other) == "20", what="20 are unread in both tabs")
    assert [text for tab in (page, other) for text in told(tab)] != []
    assert sum("20 pieces of news" in text for tab in (page, other) for text in told(tab)) == 1
    proof = page.locator("#feed-proof").get_attribute("title") or ""
    assert re.match(r"Complete since \d\d:\d\d, 0 missing, sequence number \d+", proof), proof
    # A reload keeps what is unread, and the proof, and calls for nothing again.
    page.reload()
    page.wait_for_selector("#feed-state[data-state=live]")
    assert unread(page) == "20"
    assert page.title().startswith("(20) ")
    assert (page.locator("#feed-proof").get_attribute("title") or "") == proof
    assert told(page) == []
    page.click("#feed-bell")
    page.locator("#feed-list li").nth(19).wait_for()
    listed = page.locator("#feed-list li").evaluate_all("items => items.map(item => item.dataset.id)")
    assert listed[:20] == fired[::-1]
    assert page.locator("#feed-list li.unread").count() == 20
    assert "Sold F0101 of risk level R4" in page.locator("#feed-list li").first.inner_text()
    # One that is opened is read, in every tab; so are all, at once.
    page.locator("#feed-list li a").first.click()
    page.wait_for_selector("#alert")
    until(lambda: unread(other) == "19", what="the opened one is read in the other tab")
    other.click("#feed-bell")
    other.click("#feed-read")
    until(lambda: unread(page) == "", what="all are read")


def test_twenty_tabs_call_once_and_end_together(log_in: LogIn, fire: Fire) -> None:
    first = log_in("lin")
    context = first.context
    heard: list[tuple[str, str]] = []
    sockets: list[Any] = []
    context.expose_binding("counted", lambda _source, kind, words: heard.append((kind, words)))
    context.add_init_script(EARS)
    first.reload()
    settle(first, sound=True, desktop=True, desktopFrom="medium")
    tabs = [first]
    for _ in range(19):
        page = context.new_page()
        page.on("websocket", lambda socket: sockets.append(socket))
        page.goto(LIGHT, wait_until="commit")
        tabs.append(page)
    for page in tabs:
        page.wait_for_selector("#feed-state[data-state=live]")
    assert sockets == []  # the first has it, and tells the others
    heard.clear()
    [alert_id] = fire()
    for page in tabs:
        until(lambda page=page: unread(page) == "1", what="every tab counts it")  # type: ignore[misc]
    assert Counter(kind for kind, _words in heard) == {"toast": 1, "sound": 1, "desktop": 1}
    assert ("desktop", alert_id) in heard
    # A low one is in the list and calls nobody.
    heard.clear()
    fire(30)
    for page in tabs:
        until(lambda page=page: unread(page) == "2", what="every tab counts the low one")  # type: ignore[misc]
    assert heard == []
    # The leading tab goes; another takes the socket over, and misses nothing.
    first.close()
    tabs.remove(first)
    until(lambda: tabs[0].title() and len(sockets) == 1, what="another tab leads")
    fire(78)
    for page in tabs:
        until(lambda page=page: unread(page) == "3", what="every tab counts the third")  # type: ignore[misc]
    assert Counter(kind for kind, _words in heard) == {"toast": 1, "sound": 1, "desktop": 1}
    # Who logs out in one tab has logged out in all.
    tabs[5].click(".x-menu summary")
    tabs[5].click("#logout-form button")
    for page in tabs[:5] + tabs[6:]:
        page.wait_for_selector("#feed-state[data-state=login]", timeout=5_000)
    assert "You are logged out." in tabs[0].locator("#feed-state").inner_text()
    tabs[0].click("#feed-state a")
    tabs[0].wait_for_selector("#id_username")
    assert f"next={LIGHT.replace('/', '%2F')}" in tabs[0].url


def test_what_one_does_is_no_news_to_oneself_and_what_is_handed_over_is(log_in: LogIn, fire: Fire) -> None:
    own, handed, raised = fire(61, 62, 63)
    lin, zhou = log_in("lin"), log_in("zhou")
    queue = live_tab(lin.context, "/admin/risk/riskalert/?rule=RISK-001")
    other = live_tab(lin.context, "/admin/risk/riskalert/?rule=RISK-007")
    row(queue, own).wait_for()
    # Claimed in one tab: the list of the other changes, and nobody is called.
    open_alert(lin, own)
    lin.click("form[action$='/claim/'] button")
    until(lambda: "lin" in row(queue, own).locator(".holder").inner_text(), what="the list is up to date")
    assert "is-changed" in (row(queue, own).get_attribute("class") or "")
    assert (unread(queue), unread(lin), told(queue), told(lin)) == ("", "", [], [])
    # Zhou puts an alert into Lin's hands: that is news to Lin.
    open_alert(zhou, handed)
    zhou.select_option("#assign select, form[action$='/assign/'] select", "lin")
    zhou.click("form[action$='/assign/'] button")
    zhou.wait_for_load_state()
    until(lambda: unread(queue) == "1", what="Lin is told")
    assert [text for tab in (lin, queue, other) for text in told(tab)] != []
    assert unread(zhou) == ""
    assert told(zhou) == []
    queue.click("#feed-bell")
    queue.locator(f"#feed-list li[data-id='{handed}'] .why").wait_for()
    assert "assigned to you" in queue.locator(f"#feed-list li[data-id='{handed}']").inner_text()
    queue.click("#feed-read")
    queue.keyboard.press("Escape")
    # What is chosen is not moved: what is new waits above the list, and filters hold.
    before = shown_ids(queue)
    row(queue, raised).locator("input[name=pick]").check()
    count = int(queue.locator("[data-count=cases], [data-count]").first.inner_text())
    fire(64)
    queue.locator(".x-waiting button").wait_for()
    assert queue.locator(".x-waiting").inner_text() == "1 new"
    assert shown_ids(queue) == before
    assert int(queue.locator("[data-count]").first.inner_text()) == count + 1
    assert shown_ids(other) == []
    assert not other.locator(".x-waiting").is_visible()
    queue.click(".x-waiting button")
    assert shown_ids(queue)[1:] == before
    assert row(queue, raised).locator("input[name=pick]").is_checked()
    assert not queue.locator(".x-waiting").is_visible()


class Wire:
    """The socket of a page, with a test's hand on it: what the server says passes `change`."""

    def __init__(self, page: Any) -> None:
        self.lines: list[Any] = []
        self.asked: list[dict[str, Any]] = []
        self.change: Callable[[dict[str, Any]], bool] = lambda frame: True
        page.route_web_socket(re.compile("/ws/alerts/"), self.connected)

    def connected(self, line: Any) -> None:
        server = line.connect_to_server()
        self.lines.append(line)

        def from_server(text: str) -> None:
            if self.change(json.loads(text)):
                line.send(text)

        def from_page(text: str) -> None:
            self.asked.append(json.loads(text))
            server.send(text)

        server.on_message(from_server)
        line.on_message(from_page)

    def say(self, **frame: Any) -> None:
        self.lines[-1].send(json.dumps(frame))


def test_a_gap_a_quiet_source_a_cut_and_a_new_beginning_are_told(log_in: LogIn, fire: Fire) -> None:
    page = log_in("lin")
    wire = Wire(page)
    lost: list[int] = []

    def loses_one(frame: dict[str, Any]) -> bool:
        if frame["type"] == "alert" and not lost:
            lost.append(frame["seq"])
            return False
        return True

    page.reload()
    page.wait_for_selector("#feed-state[data-state=live]")
    # A number that is lost on its way is seen, asked for, and put where it belongs.
    wire.change = loses_one
    fired = fire(61, 62, 63)
    row(page, fired[-1]).wait_for()
    assert wire.asked[-1] == {"type": "resume", "after": lost[0] - 1}
    assert shown_ids(page)[:3] == fired[::-1]
    proof = page.locator("#feed-proof")
    until(lambda: f"0 missing, sequence number {lost[0] + 2}" in (proof.get_attribute("title") or ""), what="whole")
    # The source is quiet: said in words, and no longer when it speaks.
    head = lost[0] + 2
    wire.say(type="heartbeat", head=head, source="quiet", since="2026-12-01T01:12:00.000000Z", why="publisher")
    page.wait_for_selector("#feed-state[data-source=quiet]")
    assert page.locator("#feed-state .label").inner_text() == "Live, but the source is quiet"
    assert re.search(r"since .*09:12", page.locator("#feed-how").text_content() or "")
    wire.say(type="heartbeat", head=head)
    page.wait_for_selector("#feed-state[data-source='']")
    # The server cuts a slow reader off: it comes back by itself, counting down.
    wire.lines[-1].close(code=1013, reason="slow")
    page.wait_for_selector("#feed-state[data-state=reconnecting]")
    assert "too slow" in (page.locator("#feed-how").text_content() or "")
    page.wait_for_selector("#feed-state[data-state=live]")
    # It cannot go on where it stopped: the list is read again, and the page says so.
    page.evaluate("window.kept = true")
    wire.say(type="reset")
    page.locator(".x-toast", has_text="began afresh").wait_for()
    assert page.evaluate("window.kept") is True
    until(lambda: "began afresh then" in (proof.get_attribute("title") or ""), what="the proof begins anew")
    [after] = fire(65)
    row(page, after).wait_for()
    assert shown_ids(page).count(after) == 1
    # Without the role there is no feed, and no attempt to get one.
    lines = len(wire.lines)
    wire.lines[-1].close(code=4403)
    page.wait_for_selector("#feed-state[data-state=off]")
    assert "No live feed for your role" in page.locator("#feed-state").inner_text()
    assert len(wire.lines) == lines
