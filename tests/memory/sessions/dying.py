"""A process that dies: forked off this one, and killed by SIGKILL at a chosen step of its work."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

from django.db import connections

# A child that hangs is ended by its own alarm.
PATIENCE_SECONDS = 60


def dies_at(work: Callable[[], Any], place: Any, name: str, *, after: bool) -> bool:
    """Runs `work` in a process that is killed when it calls `place.name`: before the call, or when it has returned.

    Returns whether it died there; False: it ended without coming that far. An error in it is an AssertionError here.
    """
    connections.close_all()  # nothing of the database's is shared with the child
    pid = os.fork()
    if pid == 0:
        _run(work, place, name, after)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, f"ended by signal {os.WTERMSIG(status)}"
        return True
    assert os.WEXITSTATUS(status) == 0, "the child failed; its traceback is on stderr"
    return False


def _run(work: Callable[[], Any], place: Any, name: str, after: bool) -> None:
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE_SECONDS)
        real = getattr(place, name)

        def dying(*args: Any, **kwargs: Any) -> Any:
            if after:
                real(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(place, name, dying)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # neither the test runner's nor the parent's clean-up is the child's to do
