"""Keeps children running and ends them in order. One thread, one loop, no polling of processes by time."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.supervisor import process as processes
from config.supervisor.children import Child
from config.supervisor.output import Terminal

FIRST_DELAY = 0.5  # seconds until the first restart; doubles from there
LONGEST_DELAY = 10.0
GOOD_LIFE = 30.0  # seconds of life after which a death is no longer counted as a failure to start
GIVE_UP_AFTER = 5  # failures in a row, while the installation has never been ready
TAIL_LINES = 15


class CrashLoop(Exception):
    """A child cannot start; the text tells which, how it ended and what it said last."""


class Interrupted(Exception):
    """Somebody asked us to stop before all was running."""


@dataclass
class _Kept:
    child: Child
    before_start: Callable[[], None] | None = None
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    next_start: float | None = 0.0
    failures: int = 0
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    unfinished: bytes = b""

    @property
    def running(self) -> bool:
        return self.process is not None


class Supervisor:
    """add() children, then loop(): output is shown, the dead are restarted with back-off, signals stop everything.

    Signals: the first SIGINT, SIGTERM or SIGHUP ends the loop (or raises Interrupted while `preparing`); stop_all()
    then ends the children stage by stage; a second one kills what is left.
    """

    def __init__(self, terminal: Terminal, *, env: dict[str, str], cwd: Path) -> None:
        self.terminal = terminal
        self.preparing = True
        self.was_ready = False
        self._env = env
        self._cwd = cwd
        self._kept: dict[str, _Kept] = {}
        self._selector = selectors.DefaultSelector()
        self._stop_requests = 0

    # --- signals -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Our handlers in place, the old ones back afterwards. SIGHUP stays ignored under nohup."""
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        os.set_blocking(write_end, False)
        self._selector.register(read_end, selectors.EVENT_READ, None)
        previous_fd = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        previous: dict[int, Any] = {}
        for number in (int(signal.SIGINT), int(signal.SIGTERM), int(signal.SIGHUP)):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            previous[number] = signal.signal(number, self._on_stop)
        previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)  # only wakes the loop
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous_fd)
            for number, handler in previous.items():
                signal.signal(number, handler)
            self._selector.unregister(read_end)
            os.close(read_end)
            os.close(write_end)

    def _on_stop(self, number: int, frame: object) -> None:
        self._stop_requests += 1
        if self._stop_requests > 1:
            for kept in self._kept.values():
                if kept.process is not None:
                    processes.signal_group(kept.process, signal.SIGKILL)
        elif self.preparing:
            raise Interrupted

    # --- children ----------------------------------------------------------------------------------------------

    def add(self, child: Child, before_start: Callable[[], None] | None = None) -> None:
        """Keeps `child` running from now on; before_start runs before each start and may raise to make it fail."""
        self._kept[child.name] = _Kept(child, before_start)
        self._start(self._kept[child.name])

    def process_of(self, name: str) -> subprocess.Popen[bytes] | None:
        return self._kept[name].process

    def _start(self, kept: _Kept) -> None:
        kept.next_start = None
        kept.started_at = time.monotonic()
        if kept.before_start is not None:
            kept.before_start()
        kept.process = processes.start(
            kept.child.command,
            env=self._env,
            cwd=self._cwd,
            stdout=subprocess.PIPE,
            death_signal=kept.child.death_signal,
        )
        assert kept.process.stdout is not None
        os.set_blocking(kept.process.stdout.fileno(), False)
        self._selector.register(kept.process.stdout, selectors.EVENT_READ, kept)

    def _reap(self, *, stopping: bool = False) -> None:
        for kept in self._kept.values():
            if kept.process is None or kept.process.poll() is None:
                continue
            code = kept.process.returncode
            self._read(kept)
            if kept.process.stdout is not None and not kept.process.stdout.closed:
                self._selector.unregister(kept.process.stdout)
                kept.process.stdout.close()
            processes.signal_group(kept.process, signal.SIGKILL)  # what it may have left behind
            kept.process = None
            if stopping:
                continue
            lived = time.monotonic() - kept.started_at
            kept.failures = 1 if lived > GOOD_LIFE else kept.failures + 1
            delay = min(FIRST_DELAY * 2 ** (kept.failures - 1), LONGEST_DELAY)
            kept.next_start = time.monotonic() + delay
            how = describe_exit(code)
            if kept.failures >= GIVE_UP_AFTER and not self.was_ready:
                raise CrashLoop(_crash_report(kept, how))
            self.terminal.line("up", f"{kept.child.name} stopped ({how}); starting it again in {delay:.1f} s")
            if kept.failures == GIVE_UP_AFTER:
                self.terminal.write(_crash_report(kept, how))

    def _read(self, kept: _Kept) -> None:
        if kept.process is None or kept.process.stdout is None or kept.process.stdout.closed:
            return
        descriptor = kept.process.stdout.fileno()
        while True:
            try:
                piece = os.read(descriptor, 65536)
            except BlockingIOError:
                return
            if not piece:
                self._selector.unregister(kept.process.stdout)
                kept.process.stdout.close()
                self._show(kept, kept.unfinished)
                kept.unfinished = b""
                return
            *lines, kept.unfinished = (kept.unfinished + piece).split(b"\n")
            for line in lines:
                self._show(kept, line)

    def _show(self, kept: _Kept, raw: bytes) -> None:
        text = raw.decode("utf-8", "replace").rstrip()
        if text:
            kept.tail.append(text)
        if text and not any(word in text for word in kept.child.noise):
            self.terminal.line(kept.child.name, text)

    # --- the loop ----------------------------------------------------------------------------------------------

    def turn(self, timeout: float) -> None:
        """Waits at most `timeout` seconds for output, a death or a signal, and acts on it. Errors: CrashLoop."""
        now = time.monotonic()
        waits = [kept.next_start - now for kept in self._kept.values() if kept.next_start is not None]
        for key, _events in self._selector.select(max(0.0, min([timeout, *waits]))):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(key.fd, 4096)
            else:
                self._read(key.data)
        self._reap()
        now = time.monotonic()
        for kept in self._kept.values():
            if kept.next_start is not None and kept.next_start <= now and not self._stop_requests:
                self._start(kept)

    @property
    def asked_to_stop(self) -> bool:
        return self._stop_requests > 0

    def stop_all(self) -> None:
        """Ends the children stage by stage, each within its own time, and returns when none is left."""
        self.preparing = False
        for stage in sorted({kept.child.stage for kept in self._kept.values()}):
            group = [kept for kept in self._kept.values() if kept.child.stage == stage]
            for kept in group:
                kept.next_start = None
                if kept.process is not None and kept.process.poll() is None:
                    self.terminal.line("up", f"stopping {kept.child.name}")
                    kept.process.send_signal(signal.SIGTERM)
                    kept.process.send_signal(signal.SIGCONT)
            deadline = time.monotonic() + max(kept.child.stop_after for kept in group)
            while any(kept.running for kept in group):
                left = deadline - time.monotonic()
                if left <= 0 or self._stop_requests > 1:
                    for kept in group:
                        if kept.process is not None:
                            self.terminal.line("up", f"killing {kept.child.name}")
                            processes.signal_group(kept.process, signal.SIGKILL)
                            kept.process.wait()
                for key, _events in self._selector.select(max(0.0, min(left, 0.2))):
                    if key.data is None:
                        with contextlib.suppress(BlockingIOError):
                            os.read(key.fd, 4096)
                    else:
                        self._read(key.data)
                self._reap(stopping=True)


def describe_exit(code: int) -> str:
    """`exit code 1`, or `killed by SIGKILL`."""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit code {code}"


def _crash_report(kept: _Kept, how: str) -> str:
    said = "\n".join(f"    {line}" for line in kept.tail) or "    (nothing)"
    return (
        f"{kept.child.name} cannot start: it stopped {kept.failures} times in a row, last with {how}. "
        f"Its last words:\n{said}"
    )
