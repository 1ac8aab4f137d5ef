"""Child processes that cannot outlive their parent.

On Linux the kernel itself ends them when the parent dies, however it dies (PR_SET_PDEATHSIG); elsewhere they are
ended by whoever stops the parent in an orderly way.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _tie(parent: int, death_signal: int) -> Callable[[], None]:
    """What the child does between fork and exec: ask for `death_signal` at the parent's death."""

    def tie() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
            if os.getppid() != parent:  # the parent died before the kernel had been asked
                os._exit(1)

    return tie


def start(
    arguments: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdout: int | IO[Any] | None = None,
    death_signal: int = signal.SIGKILL,
    own_session: bool = True,
) -> subprocess.Popen[bytes]:
    """Starts a child that dies with us.

    own_session: a session and process group of its own, so that a terminal's Ctrl-C reaches only us.
    env: added to our own environment. stdout: takes stderr too. Call it from the main thread: the kernel takes
    the death of the thread that forked for the death of the parent.
    """
    return subprocess.Popen(  # noqa: S603 - the arguments are ours
        [str(argument) for argument in arguments],
        env={**os.environ, **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT if stdout is not None else None,
        start_new_session=own_session,
        preexec_fn=_tie(os.getpid(), death_signal),
    )


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Sends a signal to the child and all that it started; a child that is gone is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def stop(process: subprocess.Popen[bytes], *, patience: float = 10.0, number: int = signal.SIGTERM) -> int:
    """Asks the child to end, waits `patience` seconds, then kills its group. Returns its exit code."""
    if process.poll() is None:
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)  # a stopped process hears nothing but this
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    signal_group(process, signal.SIGKILL)
    return process.wait()
