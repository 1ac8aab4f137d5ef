"""What beat has done: a look at the sessions each hour, and a queue that nobody can drain."""

from __future__ import annotations

import pytest
from django.conf import settings as django_settings

from config import checks
from config.base import redis as base_redis
from config.celery import app
from memory.sessions import tasks
from memory.sessions.drain import drain
from memory.sessions.keys import PENDING
from memory.sessions.models import AgentMessage
from tests.memory.sessions.helpers import append, let_expire, make_session
from tests.memory.sessions.reconciling import run

pytestmark = pytest.mark.django_db(transaction=True)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_each_hours_look_remembers_and_tells(caplog: pytest.LogCaptureFixture) -> None:
    session = make_session()
    append(session, "a", "b")
    drain()
    tasks.reconcile()
    assert told(caplog) == []
    let_expire(session)
    AgentMessage.objects.filter(seq=2).delete()
    tasks.reconcile()
    assert told(caplog) == ["reconcile: lost_numbers 1; `manage.py reconcile` tells more"]
    assert run()[0] == 1


def test_a_look_is_not_in_the_drains_way_and_celery_has_nothing_to_warn_of() -> None:
    entry = django_settings.CELERY_BEAT_SCHEDULE["reconcile-sessions"]
    assert app.amqp.router.route({}, str(entry["task"]))["queue"].name == "default"
    assert app.amqp.router.route({}, "memory.sessions.drain")["queue"].name == "persist"
    assert app.conf.worker_cancel_long_running_tasks_on_connection_loss
    assert not app.conf.task_acks_late


def test_a_queue_that_is_no_stream_is_told_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "broken", tasks._Broken())
    base_redis.state().set(PENDING(), "secret words")
    for _ in range(3):
        tasks.drain()
    (line,) = told(caplog)
    assert line.startswith(f"nothing is drained: {PENDING()} is a string, not a stream")
    assert "secret" not in caplog.text
    found = checks.worker_lag()
    assert (found.ok, found.advice) == (False, "manage.py reconcile --fix")
