"""The supervisor on small children: restarts, crash loops, order of stopping."""

from __future__ import annotations

import io
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from config.supervisor import supervisor as module
from config.supervisor.children import Child
from config.supervisor.output import Terminal
from config.supervisor.supervisor import CrashLoop, Interrupted, Supervisor, describe_exit


@pytest.fixture(autouse=True)
def quick_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY", 0.01)


@contextmanager
def make_supervisor(tmp_path: Path) -> Iterator[tuple[Supervisor, io.StringIO]]:
    shown = io.StringIO()
    supervisor = Supervisor(Terminal(shown, colour=False), env={}, cwd=tmp_path)
    with supervisor.signals():
        try:
            yield supervisor, shown
        finally:
            supervisor.stop_all()


def make_child(name: str, code: str, *, stage: int = 0, stop_after: float = 5.0) -> Child:
    return Child(name, (sys.executable, "-u", "-c", code), stop_after=stop_after, stage=stage)


def turn_until(supervisor: Supervisor, condition: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        supervisor.turn(0.1)


SLEEPER = "import time; print('here'); time.sleep(60)"


def test_lines_come_under_the_childs_name_and_a_dead_child_comes_back(tmp_path: Path) -> None:
    with make_supervisor(tmp_path) as (supervisor, shown):
        supervisor.was_ready = True
        supervisor.add(make_child("web", SLEEPER))
        turn_until(supervisor, lambda: "web     | here" in shown.getvalue())
        first = supervisor.process_of("web")
        assert first is not None
        first.kill()
        turn_until(supervisor, lambda: shown.getvalue().count("here") == 2)
        assert "web stopped (killed by SIGKILL); starting it again" in shown.getvalue()


def test_a_child_that_cannot_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with make_supervisor(tmp_path) as (supervisor, _shown):
        supervisor.add(make_child("beat", "import sys; print('no schedule'); sys.exit(3)"))
        with pytest.raises(CrashLoop) as caught:
            turn_until(supervisor, lambda: False)
    assert "beat cannot start: it stopped 5 times in a row, last with exit code 3" in str(caught.value)
    assert "no schedule" in str(caught.value)


def test_once_ready_a_crash_loop_is_told_and_tried_on(tmp_path: Path) -> None:
    with make_supervisor(tmp_path) as (supervisor, shown):
        supervisor.was_ready = True
        supervisor.add(make_child("drain", "raise SystemExit('bad luck')"))
        turn_until(supervisor, lambda: "drain cannot start" in shown.getvalue())
        said = shown.getvalue()
    assert said.count("starting it again") >= 5


def test_children_are_stopped_stage_by_stage_and_get_their_time(tmp_path: Path) -> None:
    finishing = (
        "import signal, time, sys\n"
        "def end(*_): time.sleep(0.3); print('batch done'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('here'); time.sleep(60)"
    )
    with make_supervisor(tmp_path) as (supervisor, shown):
        supervisor.add(make_child("redis", SLEEPER, stage=3))
        supervisor.add(make_child("worker", finishing, stage=2))
        supervisor.add(make_child("web", SLEEPER, stage=0))
        turn_until(supervisor, lambda: shown.getvalue().count("here") == 3)
    lines = [line.split("|")[1].strip() for line in shown.getvalue().splitlines() if "here" not in line]
    assert lines == ["stopping web", "stopping worker", "batch done", "stopping redis"]


def test_a_child_that_will_not_stop_is_killed(tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here'); time.sleep(60)"
    with make_supervisor(tmp_path) as (supervisor, shown):
        supervisor.add(make_child("web", deaf, stop_after=0.3))
        turn_until(supervisor, lambda: "here" in shown.getvalue())
    assert "killing web" in shown.getvalue()


def test_a_signal_while_preparing_interrupts_and_later_only_ends_the_loop(tmp_path: Path) -> None:
    with make_supervisor(tmp_path) as (supervisor, _shown), pytest.raises(Interrupted):
        signal.raise_signal(signal.SIGTERM)
    with make_supervisor(tmp_path) as (supervisor, _shown):
        supervisor.preparing = False
        signal.raise_signal(signal.SIGINT)
        assert supervisor.asked_to_stop


def test_a_closed_terminal_stops_nothing() -> None:
    closed = io.StringIO()
    closed.close()
    Terminal(closed, colour=True).line("web", "hello")


def test_exits_in_words() -> None:
    assert describe_exit(1) == "exit code 1"
    assert describe_exit(-9) == "killed by SIGKILL"
