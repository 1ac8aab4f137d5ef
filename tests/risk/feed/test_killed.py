"""Scanners and publishers killed at random: nothing lost, nothing doubled, nothing told that must not be.

What is promised of the wire: `risk:pub:feed` and `risk:pub:alert` carry each event at least once, in the order of its
number. Twice only where a publisher died between sending and marking; then it is the same number with the same words,
which is how a consumer can tell (`seq` of the feed, `alert_id` and its state of `risk:pub:alert`).
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Any

import pytest

from tests.stack import LiveStack

pytestmark = pytest.mark.slow

KILLS = 20
MUST = {"alert_id", "alert_type", "customer_id_mask", "risk_score", "trace_id", "notify_role"}
MAY = {"alert_subtype", "escalation_level"}


class Subscriber:
    """Hears everything on both channels until it is told to stop."""

    def __init__(self, stack: LiveStack) -> None:
        self.feed: list[dict[str, Any]] = []
        self.alerts: list[dict[str, Any]] = []
        self._over = threading.Event()
        self._pubsub = stack.redis.client().pubsub(ignore_subscribe_messages=True)
        self._pubsub.subscribe("risk:pub:feed", "risk:pub:alert")
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            message = self._pubsub.get_message(timeout=0.2)
            if message is not None:
                heard = self.feed if message["channel"] == "risk:pub:feed" else self.alerts
                heard.append(json.loads(message["data"]))
            elif self._over.is_set():
                return

    def stop(self) -> None:
        self._over.set()
        self._thread.join(30)
        self._pubsub.close()


def counted(stack: LiveStack, sql: str) -> dict[str, int]:
    return {str(name): int(count) for name, count in stack.query(sql)}


def test_scanners_and_publishers_killed_twenty_times_each(live_stack: LiveStack) -> None:
    live_stack.stop("beat", "worker", "drain", "publish")
    heard = Subscriber(live_stack)
    try:
        said = json.loads(
            live_stack.shell(
                f"from tests.risk.feed.killing import main\nmain(seed=7, kills={KILLS})"
            ).splitlines()[-1]
        )  # fmt: skip
    finally:
        heard.stop()
    assert min(said["killed"].values()) >= KILLS
    print(f"killed at work: {said['in_time']} of {sum(said['killed'].values())}")
    assert said["in_time"] >= KILLS

    # What was planted is live, once each.
    live = live_stack.query(
        "SELECT rule_id, evidence_key, score, subtypes FROM risk_alert_hit "
        "WHERE state = 'live' AND rule_id <> 'DATA-QUALITY'"
    )
    found = sorted([rule, key, score, json.loads(subtypes)] for rule, key, score, subtypes in live)
    assert found == sorted(said["planted"])

    # Every alert has one opening in the audit, and every hit one row; data quality is for operators and is never told.
    openings = counted(
        live_stack, "SELECT object_id, COUNT(*) FROM audit_log WHERE event_type = 'alert_opened' GROUP BY object_id"
    )
    kinds = dict(live_stack.query("SELECT alert_id, alert_type FROM risk_alert"))
    assert openings == dict.fromkeys(kinds, 1)
    [(hits,)] = live_stack.query("SELECT COUNT(*) FROM risk_alert_hit")
    [(audited,)] = live_stack.query(
        "SELECT COUNT(*) FROM audit_log WHERE event_type IN ('risk_hit', 'data_quality')"
    )  # fmt: skip
    assert audited == hits
    told_of = {alert_id for alert_id, kind in kinds.items() if kind != "data_quality"}
    of_alert = counted(live_stack, "SELECT alert_id, COUNT(*) FROM risk_alert_hit GROUP BY alert_id")

    # The outbox: an event for each hit, the first of an alert its opening, numbered without a gap, all marked.
    rows = live_stack.query("SELECT id, seq, kind, alert_id, event, published_at FROM alert_outbox ORDER BY seq")
    assert [seq for _id, seq, *_ in rows] == list(range(1, len(rows) + 1))
    assert all(published for *_, published in rows)
    assert Counter(row[3] for row in rows) == {alert_id: of_alert[alert_id] for alert_id in told_of}
    first: dict[str, str] = {}
    for _id, _seq, kind, alert_id, _event, _published in rows:
        first.setdefault(alert_id, kind)
    assert first == dict.fromkeys(told_of, "alert")

    # The wire: all of it, in order, the same words under the same number.
    kept = {seq: (kind, json.loads(event)) for _id, seq, kind, _alert, event, _published in rows}
    last, twice = 0, 0
    for message in heard.feed:
        assert set(message) == {"tenant", "seq", "event"}
        kind, event = kept[message["seq"]]
        assert message["event"] == ({"type": "alert", "alert": event} if kind == "alert" else {"type": kind, **event})
        if message["seq"] == last + 1:
            last += 1
        else:
            assert message["seq"] <= last, "a number is heard for the first time in its turn"
            twice += 1
    assert last == len(rows)
    print(f"events: {len(rows)}, {said['amid']} of them while the killing went on, of which heard twice: {twice}")
    wanted = [event for kind, event in kept.values() if kind == "alert"]
    assert {json.dumps(one, sort_keys=True) for one in heard.alerts} == {
        json.dumps(one, sort_keys=True) for one in wanted
    }
    for payload in heard.alerts:
        assert MUST <= set(payload) <= MUST | MAY
        assert "***" in payload["customer_id_mask"]
        assert payload["alert_type"] in ("event", "report")

    # The replay: a screen that comes now gets the same from the outbox.
    replay = json.loads(
        live_stack.shell(
            "import json\nfrom risk.feed.selectors import frames_after, head\nfound, at = [], 0\n"
            "while page := frames_after(tenant='default', after=at):\n    found += page\n    at = page[-1]['seq']\n"
            "print(json.dumps([head(tenant='default'), found]))"
        ).splitlines()[-1]
    )
    assert replay[0] == len(rows)
    assert {frame["seq"]: frame for frame in replay[1]} == {
        message["seq"]: {**message["event"], "seq": message["seq"]} for message in heard.feed
    }


def test_scanners_killed_while_late_and_corrected_trades_come_in(live_stack: LiveStack) -> None:
    """The end is that of one scan of the whole story, whatever was found, corrected and withdrawn on the way."""
    live_stack.stop("beat", "worker", "drain", "publish")
    said = json.loads(
        live_stack.shell(
            f"from tests.risk.feed.killing import main\nmain(seed=23, kills={KILLS}, in_parts=True)"
        ).splitlines()[-1]
    )  # fmt: skip
    assert min(said["killed"].values()) >= KILLS
    live = live_stack.query(
        "SELECT rule_id, evidence_key, score, subtypes FROM risk_alert_hit "
        "WHERE state = 'live' AND rule_id <> 'DATA-QUALITY'"
    )
    found = sorted([rule, key, score, json.loads(subtypes)] for rule, key, score, subtypes in live)
    assert found == sorted(said["planted"])
    [(again,)] = live_stack.query("SELECT COUNT(*) FROM risk_alert_hit")
    live_stack.shell("from risk.rules.services import scan\nscan(everything=True)")
    assert live_stack.query("SELECT COUNT(*) FROM risk_alert_hit") == [(again,)], "nothing was left to be found"

    # Every finding and every opening is on the audit record once; the counts are those of the live hits.
    openings = counted(
        live_stack, "SELECT object_id, COUNT(*) FROM audit_log WHERE event_type = 'alert_opened' GROUP BY object_id"
    )
    kinds = dict(live_stack.query("SELECT alert_id, alert_type FROM risk_alert"))
    assert openings == dict.fromkeys(kinds, 1)
    [(audited,)] = live_stack.query("SELECT COUNT(*) FROM audit_log WHERE event_type IN ('risk_hit', 'data_quality')")
    assert audited == again
    standing = counted(
        live_stack, "SELECT alert_id, COUNT(*) FROM risk_alert_hit WHERE state = 'live' GROUP BY alert_id"
    )
    assert counted(live_stack, "SELECT alert_id, hit_count FROM risk_alert WHERE hit_count > 0") == standing
    revisions = live_stack.query(
        "SELECT MAX(revision) - COUNT(*) FROM risk_alert_hit GROUP BY tenant, rule_id, evidence_key"
    )
    assert {int(missing) for (missing,) in revisions} == {0}

    # Each change was told once, the opening first, all numbered and sent.
    rows = live_stack.query("SELECT seq, kind, alert_id, published_at FROM alert_outbox ORDER BY seq")
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    assert all(row[3] for row in rows)
    told_of = {alert_id for alert_id, kind in kinds.items() if kind != "data_quality"}
    versions = counted(live_stack, "SELECT alert_id, version FROM risk_alert WHERE alert_type <> 'data_quality'")
    assert Counter(row[2] for row in rows) == versions
    first: dict[str, str] = {}
    for _seq, kind, alert_id, _published in rows:
        first.setdefault(alert_id, kind)
    assert first == dict.fromkeys(told_of, "alert")
