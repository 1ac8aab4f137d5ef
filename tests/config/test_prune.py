"""`manage.py prune`: in batches, beside writers and beside itself, and what it says."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from config import pruning
from config.base.clock import now
from config.base.redis import RedisUnavailable
from config.tasks import LOCK
from config.tasks import prune as prune_task
from guard.audit.models import AuditLog, EventType
from guard.locks import hold
from memory.profiles.queries.models import AnalyticsGrant, AnalyticsQueryText
from risk.alerts.models import AlertOutbox, FeedHead
from tests.memory.erasure.helpers import Thread
from tests.pruning import prune_table

pytestmark = pytest.mark.django_db(transaction=True)
PROJECT = Path(__file__).resolve().parents[2]
OLD, NEW = timedelta(days=181), timedelta(days=179)


def make_texts(
    many: int, *, age: timedelta = OLD, tenant: str = "default", text: str = "SELECT 1", first: int = 0
) -> None:
    AnalyticsQueryText.objects.bulk_create(
        AnalyticsQueryText(query_id=f"{tenant}-{n:05}", tenant=tenant, text=text, created_at=now() - age)
        for n in range(first, first + many)
    )


def texts() -> set[str]:
    return set(AnalyticsQueryText.objects.values_list("pk", flat=True))


def prune(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and what became of each table by name."""
    out, code = io.StringIO(), 0
    try:
        call_command("prune", "--json", *arguments, stdout=out)
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    return code, {row["name"]: row for row in json.loads(out.getvalue())["tables"]}


def test_what_is_over_goes_and_what_is_not_stays() -> None:
    make_texts(7)
    make_texts(2, age=NEW, first=7)
    code, tables = prune("--table", "analytics_query_text", "--batch", "3")
    assert code == 0
    assert (tables["analytics_query_text"]["removed"], tables["analytics_query_text"]["batches"]) == (7, 3)
    assert texts() == {"default-00007", "default-00008"}
    row, *_ = AuditLog.objects.filter(event_type=EventType.ERASURE, object_type="retention").order_by("id")
    assert (row.object_id, row.actor_id, row.input_summary["rows"]) == ("analytics_query_text", "prune", 3)
    assert prune("--table", "analytics_query_text")[1]["analytics_query_text"]["removed"] == 0


def test_a_dry_run_counts_and_removes_nothing() -> None:
    make_texts(5)
    code, tables = prune("--dry-run")
    assert (code, tables["analytics_query_text"]["removed"]) == (0, 5)
    assert len(texts()) == 5
    assert not AuditLog.objects.filter(object_type="retention").exists()


def test_of_one_tenant_alone() -> None:
    make_texts(2)
    make_texts(2, tenant="acme")
    prune("--tenant", "acme")
    assert texts() == {"default-00000", "default-00001"}


def test_the_setting_decides(settings: Any) -> None:
    make_texts(1, age=timedelta(days=31))
    assert prune_table("analytics_query_text", at=now()).removed == 0
    settings.RETENTION = {"analytics_query_text": 30}
    assert prune_table("analytics_query_text", at=now()).removed == 1


def test_each_batch_costs_so_much_however_large_the_table() -> None:
    prune_table("analytics_query_text", "analytics_grant")  # whatever is made once
    make_texts(40)
    with CaptureQueriesContext(
        connection,
    ) as seen:
        assert prune_table("analytics_query_text", batch=10, at=now()).batches == 4
    said = [
        query["sql"] for query in seen.captured_queries if not query["sql"].startswith(("BEGIN", "COMMIT", "SAVEPOINT"))
    ]
    # The window's end; and of each batch: find, whose, gate, holds, lock, delete, audit row with what it asks.
    assert len(said) <= 2 + 4 * 9, said


def test_the_walk_ends_where_nothing_is_older(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "WINDOW", 5)
    make_texts(12)
    make_texts(40, age=NEW, first=12)
    with CaptureQueriesContext(connection) as seen:
        assert prune_table("analytics_query_text", at=now()).removed == 12
    looks = [query["sql"] for query in seen.captured_queries if "OFFSET" in query["sql"]]
    assert len(looks) <= 5  # three windows with something, one without
    assert len(texts()) == 40


def test_a_table_that_fails_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    make_texts(1)
    AnalyticsGrant.objects.create(
        tenant="default", actor_id="ana", reason="x", granted_by="pat", expires_at=now() - timedelta(days=401)
    )

    def refuses(tenant: str) -> Any:
        raise OperationalError(2006, "gone")

    monkeypatch.setattr("config.pruning.gate", refuses)
    code, tables = prune()
    assert code == 1
    assert tables["analytics_query_text"]["error"] == "OperationalError"
    assert tables["analytics_grant"]["removed"] == 1


def test_time_is_up() -> None:
    make_texts(3)
    code, tables = prune("--seconds", "0")
    assert code == 1
    assert not tables["analytics_query_text"]["done"]
    assert len(texts()) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--table", "audit_log"], "audit_log is not pruned: kept for good"),
        (["--table", "who"], "there is no table 'who'"),
        (["--batch", "0"], "--batch 0 is outside"),
        (["--tenant", "a b"], "tenant"),
    ],
)
def test_refused_with_a_reason(arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said) as refused:
        call_command("prune", *arguments)
    assert refused.value.returncode == 2


def test_words_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    make_texts(2)
    call_command("prune", "--table", "analytics_query_text")
    assert "analytics_query_text: 2 gone\n" in capsys.readouterr().out


@pytest.mark.mariadb
def test_two_at_once_take_nothing_from_each_other() -> None:
    make_texts(300)
    start = threading.Barrier(2)

    def one() -> int:
        start.wait(10)
        return prune_table("analytics_query_text", batch=7, at=now()).removed

    took: list[Any] = []
    for thread in [Thread(one), Thread(one)]:
        thread.end()
        assert thread.error is None, thread.error
        took.append(thread.answer)
    assert sum(took) == 300
    assert texts() == set()


@pytest.mark.mariadb
def test_rows_that_somebody_has_locked_are_left_to_the_next_run_and_nobody_waits() -> None:
    make_texts(40)
    with transaction.atomic():
        AnalyticsQueryText.objects.select_for_update().get(pk="default-00001")
        other = Thread(lambda: prune_table("analytics_query_text", batch=20, at=now())).end()
        assert other.error is None
        assert (other.answer.removed, other.answer.error) == (39, "")
        make_texts(1, age=NEW, first=999)  # a writer beside it is not kept waiting either
    assert texts() == {"default-00001", "default-00999"}
    assert prune_table("analytics_query_text", at=now()).removed == 1


PRUNER = """
import os, sys
import django
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[1]
settings.REDIS_KEY_PREFIX = sys.argv[2]
django.setup()
from config import pruning, retention_registry
tell = pruning._tell
def slowly(*arguments):
    tell(*arguments)
    print("removed, not committed", flush=True)
    sys.stdin.readline()
pruning._tell = slowly
pruning.prune([rule for rule in retention_registry.load() if rule.name == "analytics_query_text"], batch=4)
"""


@pytest.mark.slow  # starts and kills a real process
@pytest.mark.mariadb
def test_killed_in_a_batch_it_is_gone_on_with(settings: Any) -> None:
    make_texts(10)
    process = subprocess.Popen(
        [sys.executable, "-c", PRUNER, connection.settings_dict["NAME"], settings.REDIS_KEY_PREFIX],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT,
        env={**os.environ, "REDIS_URL": settings.REDIS_URL},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"removed, not committed\n"
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"removed, not committed\n"
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert len(texts()) == 6  # the first batch stays gone, the second is whole
    assert prune_table("analytics_query_text", at=now()).removed == 6
    rows = AuditLog.objects.filter(object_type="retention").values_list("input_summary", flat=True)
    assert sum(row["rows"] for row in rows) == 10


def make_events(*ages: timedelta | None, tenant: str = "default") -> None:
    """Events of a feed, oldest first; None: not sent yet."""
    for seq, age in enumerate(ages, 1):
        AlertOutbox.objects.create(
            tenant=tenant, seq=seq, kind="update", alert_id="a", published_at=None if age is None else now() - age
        )
    FeedHead.objects.create(tenant=tenant, seq=len(ages))


def test_the_feed_loses_its_beginning_and_never_a_piece_of_its_middle() -> None:
    day = timedelta(days=1)
    make_events(100 * day, 99 * day, 98 * day, None, 95 * day, day)
    make_events(91 * day, 89 * day, tenant="acme")
    assert prune_table("alert_outbox", batch=2, at=now()).removed == 4
    left = AlertOutbox.objects.order_by("tenant", "seq").values_list("tenant", "seq")
    assert list(left) == [("acme", 2), ("default", 4), ("default", 5), ("default", 6)]


def test_the_task_has_a_lock_and_goes_on_without_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    make_texts(2)
    with hold(LOCK):
        assert prune_task() == {}
    assert prune_task() == {"analytics_query_text": 2}
    make_texts(2)

    def away(*_: Any, **__: Any) -> Any:
        raise RedisUnavailable("away")

    monkeypatch.setattr("config.tasks.hold", away)
    assert prune_task() == {"analytics_query_text": 2}
