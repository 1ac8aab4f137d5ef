"""What is over goes by itself, a little at a time, and what still counts stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import DatabaseError, OperationalError

from config.base.clock import now
from config.celery import app
from guard import pruning
from guard.access.models import AgentPrincipal, LoginCount, RevokedToken, TokenFamily
from guard.access.services import issue_key
from guard.admission.blocks import block_actor, lift_block
from guard.admission.models import ActorBlock, AdmissionLimit, AgentPause
from guard.audit.models import AuditLog
from guard.tasks import prune

pytestmark = pytest.mark.django_db(transaction=True)
HOUR, LONG_AGO = timedelta(hours=1), timedelta(days=401)


def make_tokens(*ages: timedelta) -> None:
    for n, age in enumerate(ages):
        ends = now() - age
        TokenFamily.objects.create(family_id=f"f{n}", tenant="default", principal_id="p", expires_at=ends)
        RevokedToken.objects.create(jti=f"j{n}", tenant="default", expires_at=ends)
        LoginCount.objects.create(scope=f"u-{n}", failures=1, ends_at=ends)


def test_tokens_and_counters_go_an_hour_after_their_end() -> None:
    make_tokens(2 * HOUR, HOUR / 2, -HOUR)
    gone = prune()
    assert (gone["tokens"], gone["logins"]) == (2, 1)
    assert set(TokenFamily.objects.values_list("pk", flat=True)) == {"f1", "f2"}
    assert set(RevokedToken.objects.values_list("pk", flat=True)) == {"j1", "j2"}
    assert set(LoginCount.objects.values_list("pk", flat=True)) == {"u-1", "u-2"}
    assert not any(prune().values())


def test_history_is_kept_for_its_days_and_the_audit_log_for_good() -> None:
    first, second = (issue_key(agent="risk").principal for _ in range(2))
    living = issue_key(agent="risk").principal
    AgentPrincipal.objects.filter(pk=first.pk).update(revoked_at=now() - LONG_AGO)
    AgentPrincipal.objects.filter(pk=second.pk).update(expires_at=now() - HOUR)
    for actor in ("alice", "bob", "carol"):
        block_actor(tenant="default", actor_id=actor, code="X", by="wei")
    for actor in ("alice", "bob"):
        lift_block(tenant="default", actor_id=actor, by="manage.py unblock")
    ActorBlock.objects.filter(actor_id="alice").update(ended_at=now() - LONG_AGO)
    AgentPause.objects.create(
        tenant="default", agent="risk", reason="x", paused_by="wei", open=None, ended_at=now() - LONG_AGO
    )
    AgentPause.objects.create(tenant="default", agent="risk", reason="x", paused_by="wei", started_at=now() - LONG_AGO)
    rows = AuditLog.objects.count()
    gone = prune()
    assert (gone["principals"], gone["blocks"]) == (1, 2)
    assert set(AgentPrincipal.objects.values_list("pk", flat=True)) == {second.pk, living.pk}
    assert set(ActorBlock.objects.values_list("actor_id", flat=True)) == {"bob", "carol"}
    assert AgentPause.objects.get().open == 1
    assert AuditLog.objects.count() == rows


def make_limit(actor_id: str, version: int, *, current: int | None, retired: bool = False, age: timedelta) -> None:
    AdmissionLimit.objects.create(
        tenant="default", kind="rate", actor_id=actor_id, value=5, version=version, current=current, retired=retired,
        changed_by="wei", changed_at=now() - age,
    )  # fmt: skip


def test_former_versions_of_limits_go_and_the_one_in_force_stays_however_old() -> None:
    make_limit("alice", 1, current=None, age=LONG_AGO)
    make_limit("alice", 2, current=None, age=HOUR)
    make_limit("alice", 3, current=1, age=LONG_AGO)
    make_limit("gone", 1, current=1, retired=True, age=LONG_AGO)
    assert prune()["limits"] == 2
    left = AdmissionLimit.objects.order_by("version").values_list("actor_id", "version")
    assert list(left) == [("alice", 2), ("alice", 3)]


def test_logins_to_the_console_that_are_over_go() -> None:
    for n, age in enumerate((HOUR, -HOUR)):
        Session.objects.create(session_key=f"s{n}", session_data="", expire_date=now() - age)
    assert prune()["console_sessions"] == 1
    assert Session.objects.get().session_key == "s1"


def test_it_goes_in_batches_until_all_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "BATCH", 3)
    make_tokens(*[2 * HOUR] * 8)
    sizes: list[int] = []
    original = pruning.prune_logins
    monkeypatch.setitem(pruning.PRUNERS, "logins", lambda *, limit: sizes.append(many := original(limit=limit)) or many)
    assert prune()["logins"] == 8
    assert sizes == [3, 3, 2]


def test_a_run_ends_in_time_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    make_tokens(2 * HOUR)
    monkeypatch.setattr(pruning, "LONGEST_SECONDS", 0.0)
    assert not any(prune().values())
    monkeypatch.undo()
    assert prune()["logins"] == 1


def test_one_table_that_fails_is_not_in_the_others_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*, limit: int) -> int:
        raise OperationalError(1146, "no such table")

    make_tokens(2 * HOUR)
    monkeypatch.setitem(pruning.PRUNERS, "tokens", fail)
    assert prune()["logins"] == 1
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "guard: nothing removed of tokens: OperationalError"
    ]
    for name in pruning.PRUNERS:
        monkeypatch.setitem(pruning.PRUNERS, name, fail)
    with pytest.raises(DatabaseError):
        prune()


def test_every_table_that_somebody_can_prune_is_on_the_timer() -> None:
    entries: list[Any] = [one for one in django_settings.CELERY_BEAT_SCHEDULE.values() if one["task"] == "guard.prune"]
    assert [(one["schedule"], one["options"]) for one in entries] == [(600.0, {"expires": 300})]
    app.loader.import_default_modules()
    assert "guard.prune" in app.tasks
    assert app.amqp.router.route({}, "guard.prune")["queue"].name == "default"


def test_whoever_is_logged_in_stays_so(client: Any) -> None:
    client.force_login(User.objects.create_superuser("root"))
    prune()
    assert client.get("/admin/").status_code == 200
