"""What is kept of which table, said by the rooms: complete, as the document says, and never less than the law."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command

from config import retention_registry
from config.base.retention import Retention, faults, register, registered
from config.celery import app
from guard.audit.models import AuditLog

PROJECT = Path(__file__).resolve().parents[2]


def test_every_table_is_spoken_of() -> None:
    assert retention_registry.unspoken() == []


def test_each_rule_says_what_how_long_and_why() -> None:
    for rule in registered():
        assert rule.holds, rule.name
        assert rule.why, rule.name
        assert rule.until or rule.period, rule.name
        assert rule.since or rule.days is None, rule.name


def test_the_document_is_up_to_date() -> None:
    call_command("prune", "--fresh")


def test_the_list_says_what_is_in_force_here(settings: object) -> None:
    settings.RETENTION = {"alert_outbox": 30}  # type: ignore[attr-defined]
    out = io.StringIO()
    call_command("prune", "--list", "--json", stdout=out)
    rows = {row["name"]: row for row in json.loads(out.getvalue())}
    assert (rows["alert_outbox"]["days"], rows["alert_outbox"]["default_days"]) == (30, 90)
    assert rows["audit_log"]["days"] is None
    assert rows["agent_session"]["floor_days"] == 7305


def test_less_than_the_law_and_unknown_tables_are_a_sentence() -> None:
    assert faults({"alert_outbox": 30, "agent_session": 7305, "advisor_draft.expired": 365}) == []
    (said,) = faults({"agent_session": 7304})
    assert "agent_session=7304 is less than the 7305 days" in said
    (said,) = faults({"audit_log": 90})  # nothing to set: it is kept
    assert "'audit_log' has no period to set" in said
    assert len(faults({"nothing": 1, "risk_alert": 1})) == 2


@pytest.mark.parametrize(
    "value", ["profile_version=30", "alert_outbox", "alert_outbox=0", "alert_outbox=1,alert_outbox=2"]
)
def test_refused_at_start(value: str, tmp_path: Path) -> None:
    environment = {**os.environ, "RETENTION": value, "DATA_DIR": str(tmp_path), "SECRET_KEY": "x"}
    done = subprocess.run(
        [sys.executable, "manage.py", "prune", "--list"], cwd=PROJECT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("settings: RETENTION: ")
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_table_is_spoken_of_once() -> None:
    with pytest.raises(ValueError, match="said twice"):
        register(Retention("audit_log", "other words", "none", until="tomorrow"))
    with pytest.raises(ValueError, match="how long"):
        register(Retention("new_table", "things", "none"))


def test_beat_prunes_at_night_and_drops_what_waited() -> None:
    entry = app.conf.beat_schedule["prune"]
    app.loader.import_default_modules()
    assert entry["task"] in app.tasks
    assert entry["options"]["expires"] <= 900
    assert AuditLog._meta.db_table not in {rule.name for rule in registered() if rule.prunable}
