"""Drains queued messages into MySQL by hand: what the worker does each second."""

from __future__ import annotations

import json
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from config.base.redis import RedisUnavailable
from memory.sessions.drain import Drained, backlog, drain
from memory.sessions.keys import GROUP, PENDING
from memory.sessions.looking import queue_fault, read_stream


class Command(BaseCommand):
    help = (
        "Writes queued messages to the database until none is left. Harmless beside the workers. "
        "Exit code 0: nothing is left; 1: something is left after --seconds, Redis or the database is away, or the "
        "queue's key is no stream."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--seconds", type=float, default=60.0, help="how long at most (default 60)")
        parser.add_argument("--json", action="store_true", help="machine-readable result")

    def handle(self, *args: Any, **options: Any) -> None:
        total = Drained()
        if options["seconds"] <= 0:
            raise CommandError("--seconds must be positive", returncode=2)
        until = time.monotonic() + options["seconds"]
        try:
            stream = read_stream(only_itself=True)
            fault = queue_fault(stream)
            if fault:
                raise CommandError(fault, returncode=1)
            if stream.age and not stream.grouped:
                self.stderr.write(f"the group {GROUP} of {PENDING()} was missing: made anew, all of the queue is read")
            while True:
                done = drain(seconds=max(0.0, until - time.monotonic()))
                total.stored += done.stored
                total.known += done.known
                total.dead += done.dead
                left = backlog()
                if not left or time.monotonic() >= until:
                    break
                # What is left is held by another drain, or by one that died: it is handed out again when it is idle.
                time.sleep(0.2)
        except RedisUnavailable as error:
            raise CommandError(f"{error}: nothing can be drained before it is back", returncode=1) from None
        finally:
            connection.close()
        result = {"stored": total.stored, "known": total.known, "dead_letters": total.dead, "left": left}
        if options["json"]:
            self.stdout.write(json.dumps(result))
        else:
            self.stdout.write(
                f"{total.stored} written, {total.known} were there already, {total.dead} to the dead letters, "
                f"{left} left in the queue"
            )
        if left:
            raise CommandError(f"{left} messages are still queued after {options['seconds']:g} s", returncode=1)
