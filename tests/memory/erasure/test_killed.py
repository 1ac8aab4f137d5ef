"""An eraser that is killed anywhere: the next run finishes what it began, and everything is counted once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from config.base.errors import DomainError
from memory.erasure import running
from memory.erasure.models import ErasureReceipt
from memory.erasure.services import erase_customer
from memory.sessions.drain import drain
from tests.dying import Killed
from tests.memory.erasure.helpers import (
    ALICE,
    ALICE_ID,
    SECRET,
    Thread,
    erase,
    left_of,
    make_profiles,
    make_session,
    nothing_left,
    say,
)

pytestmark = pytest.mark.django_db(transaction=True)
PROJECT = Path(__file__).resolve().parents[3]


def a_life() -> None:
    for _ in range(3):
        session = make_session()
        for n in range(3):
            say(session, durability="sync" if n else "async")
    drain(seconds=0.2)
    say(session)
    make_profiles()


def test_killed_after_any_step_the_next_run_finishes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = running.Erasing.step
    monkeypatch.setattr("memory.sessions.erasing.SESSIONS_A_STEP", 2)
    monkeypatch.setattr("memory.sessions.erasing.ROWS_A_STEP", 4)
    steps = 0
    kills = 0
    for die_at in range(1, 60):
        customer_id = f"{ALICE_ID}-{die_at}"
        caller = type(ALICE)("default", "customer", customer_id)
        for _ in range(3):
            session = make_session(caller, customer_id)
            for n in range(3):
                say(session, caller=caller, durability="sync" if n else "async")
        make_profiles(customer_id)
        steps = 0

        def step(job: Any, work: Any, die_at: int = die_at) -> Any:
            nonlocal steps
            answer = real(job, work)
            steps += 1
            if steps == die_at:
                raise Killed
            return answer

        monkeypatch.setattr(running.Erasing, "step", step)
        try:
            erase_customer(customer_id=customer_id, by="dpo")
        except Killed:
            kills += 1
        else:
            break
        monkeypatch.setattr(running.Erasing, "step", real)
        said = 9
        try:  # refused, or, where the dead run had not come to this session yet, removed by the next one
            say(session, caller=caller)
            said += 1
        except DomainError as error:
            if error.code != "CUSTOMER_ERASED":
                raise
        receipt = erase_customer(customer_id=customer_id, by="dpo")
        removed = receipt.removed["memory.sessions"]
        assert receipt.state == "done"
        assert (removed["sessions"], removed["messages"] + removed.get("queued", 0)) == (3, said), (die_at, removed)
        assert receipt.removed["memory.profiles"] == {"l1": 1, "l2": 1, "l3": 1, "versions": 3}
        assert left_of(customer_id, SECRET) == [], die_at
    assert kills > 8


ERASER = """
import os, sys
import django
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[1]
settings.REDIS_KEY_PREFIX = sys.argv[2]
django.setup()
from memory.erasure import running
from memory.erasure.services import erase_customer
from memory.sessions import erasing
erasing.ROWS_A_STEP = 2
remove = erasing._remove_messages
def slowly(pks, step):
    found = remove(pks, step)
    print("removed, not committed", flush=True)
    sys.stdin.readline()
    return found
erasing._remove_messages = slowly
erase_customer(customer_id=sys.argv[3], by="dpo")
"""


@pytest.mark.slow  # starts and kills a real process
@pytest.mark.mariadb
def test_a_killed_process_leaves_what_the_next_one_finishes(settings: Any) -> None:
    a_life()
    process = subprocess.Popen(
        [sys.executable, "-c", ERASER, connection.settings_dict["NAME"], settings.REDIS_KEY_PREFIX, ALICE_ID],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT,
        env={**os.environ, "REDIS_URL": settings.REDIS_URL},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for _ in range(2):
        assert process.stdout.readline() == b"removed, not committed\n"
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert process.stdout.readline() == b"removed, not committed\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert ErasureReceipt.objects.get().state == "running"
    code, receipt = erase()
    assert (code, receipt["state"]) == (0, "done")
    assert receipt["removed"]["memory.sessions"]["sessions"] == 3
    nothing_left()


@pytest.mark.mariadb
def test_two_erasers_at_once_count_everything_once() -> None:
    a_life()
    erasers = [Thread(erase) for _ in range(3)]
    answers = [eraser.end() for eraser in erasers]
    assert [eraser.error for eraser in answers] == [None] * 3
    receipt = ErasureReceipt.objects.get()
    assert receipt.state == "done"
    removed = receipt.removed["memory.sessions"]
    assert (removed["sessions"], removed["messages"], removed["queued"]) == (3, 9, 1)
    nothing_left()
