"""A nudge to the publisher after a commit. Only a nudge: beat polls the outbox twice a second anyway.

The task is sent by a thread of its own, so that a broker that is down or hangs costs the caller nothing, and many
commits in a row become one task.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time

logger = logging.getLogger(__name__)

TASK = "risk.feed.publish"
EXPIRES_SECONDS = 5
PAUSE_SECONDS = 1.0  # after a failure
EXIT_SECONDS = 1.0


class _Nudger:
    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._tried = threading.Event()  # since the last nudge that was asked for
        self._start = threading.Lock()
        self._pid = 0

    def __call__(self) -> None:
        self._ensure_thread()
        self._tried.clear()
        self._wanted.set()

    def finish(self, seconds: float = EXIT_SECONDS) -> bool:
        """Waits until what this process asked for was sent, or could not be; False where that takes longer."""
        return self._pid != os.getpid() or self._tried.wait(seconds)

    def _ensure_thread(self) -> None:
        # Threads do not survive a fork: each process has its own.
        if self._pid == os.getpid():
            return
        with self._start:
            if self._pid != os.getpid():
                self._wanted, self._tried = threading.Event(), threading.Event()
                atexit.register(self.finish)
                threading.Thread(target=self._run, name="feed-nudge", daemon=True).start()
                self._pid = os.getpid()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            sent = send()
            if not self._wanted.is_set():
                self._tried.set()
            if not sent:
                # Beat does the work meanwhile; an outage is a line a second in the log and not one an event.
                time.sleep(PAUSE_SECONDS)


def send() -> bool:
    """Sends the task once. False: the broker is away, which is a line in the log and no error."""
    from celery import current_app

    try:
        current_app.send_task(TASK, expires=EXPIRES_SECONDS, retry=False, ignore_result=True)
    except Exception as error:  # noqa: BLE001 - kombu, redis and OS errors alike: beat polls, nothing depends on this
        logger.info("could not nudge the publisher (%s); beat will", type(error).__name__)
        return False
    return True


nudge_publisher = _Nudger()
