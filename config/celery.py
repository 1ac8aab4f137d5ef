"""The Celery application. Tasks are thin and live in the rooms' `tasks.py`."""

import os
from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from celery.signals import task_postrun, task_prerun
from kombu import Connection
from kombu.transport.redis import QoS, Transport
from redis.exceptions import OutOfMemoryError

from config.base.trace import new_trace_id, set_trace_id

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


# Seconds between attempts to reach the broker again. Celery's own way waits up to 32 s after a long outage, and
# what is queued must be in the database within 5 s of it.
LONGEST_RECONNECT_WAIT = 1.0


# Handing unacknowledged tasks back when a connection ends fails where the broker itself is gone, and kombu then ends
# the worker (AttributeError in restore_unacked) instead of trying again. Nothing of ours needs it: tasks expire.
QoS.restore_at_shutdown = False

# A broker that is full (noeviction) refuses to note a task that was taken, or that it is done. For kombu that is no
# fault of the connection, and it ends the worker; it is one that passes, like a broker that is away.
Transport.connection_errors = (*Transport.connection_errors, OutOfMemoryError)


class _QuickConnection(Connection):
    def ensure_connection(self, *args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("interval_start", LONGEST_RECONNECT_WAIT)
        kwargs.setdefault("interval_step", 0)
        kwargs.setdefault("interval_max", LONGEST_RECONNECT_WAIT)
        return super().ensure_connection(*args, **kwargs)


class _QuickAMQP(AMQP):
    Connection = _QuickConnection


app = Celery("xinghuo", amqp=_QuickAMQP)
# Celery's "current app" is per thread; without a default, threads of a web server would talk to another broker.
app.set_default()
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(
    [
        *("config", "guard", "guard.audit"),
        *("guard.admission", "memory.sessions", "memory.profiles", "memory.core", "memory.erasure"),
        *("risk.rules", "risk.alerts", "risk.conduct", "risk.console", "risk.feed", "risk.notify"),
    ]
)


@task_prerun.connect
def begin_trace(**_: Any) -> None:
    """Each task is a piece of work of its own: a worker process runs many, and their rows must not share a trace."""
    set_trace_id(new_trace_id())


@task_postrun.connect
def end_trace(**_: Any) -> None:
    """What the worker itself logs between tasks belongs to none."""
    set_trace_id("")
