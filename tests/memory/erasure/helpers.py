"""A customer with something everywhere, and the question whether anything is left of it anywhere."""

from __future__ import annotations

import io
import json
import threading
import uuid
from collections.abc import Callable
from typing import Any

from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, connections

from config.base import redis as base_redis
from config.base.keys import prefixed
from guard.access.services import Caller
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3
from memory.sessions import services
from memory.sessions.entries import NewMessage
from memory.sessions.models import AgentMessage, MessageDeadLetter

ALICE_ID = "cust-alice-0001"
SECRET = "the-secret-that-alice-told"
BOB_ID = "cust-bob-0002"

ALICE = Caller("default", "customer", ALICE_ID)
BOB = Caller("default", "customer", BOB_ID)
WEI = Caller("default", "advisor", "adv-wei")


def make_session(caller: Caller = ALICE, customer_id: str | None = ALICE_ID, session_id: str | None = None) -> str:
    wanted = session_id or f"chat-{uuid.uuid4().hex}"
    return services.open_session(caller=caller, session_id=wanted, customer_id=customer_id).owner.session_id


def say(
    session_id: str,
    text: str = SECRET,
    *,
    caller: Caller = ALICE,
    durability: str = "async",
    entry_id: str | None = None,
) -> Any:
    message = NewMessage("user", text, entry_id)
    return services.append_messages(caller=caller, session_id=session_id, messages=[message], durability=durability)


def make_profiles(customer_id: str = ALICE_ID, tenant: str = "default", text: str = SECRET) -> None:
    CustomerProfileL1.objects.create(tenant=tenant, customer_id=customer_id, payload={"goals": text})
    CustomerProfileL2.objects.create(tenant=tenant, customer_id=customer_id, advisor_id="adv-wei", payload={"x": text})
    CustomerProfileL3.objects.create(tenant=tenant, customer_id=customer_id, payload={"x": text})


def erase(customer_id: str = ALICE_ID, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and receipt of `manage.py erase_customer --json`."""
    return command("erase_customer", customer_id, "--by", "dpo", *arguments)


def command(*arguments: str) -> tuple[int, Any]:
    out = io.StringIO()
    code = 0
    try:
        call_command(*arguments, "--json", stdout=out)
    except CommandError as error:
        code = error.returncode
    return code, json.loads(out.getvalue()) if out.getvalue() else {}


def found_in_database(text: str) -> list[str]:
    """Tables and columns where a text stands, whatever the table: every text column of every table is searched."""
    places = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            if table.startswith("django_"):
                continue
            table_name = connection.ops.quote_name(table)
            cursor.execute(f"SELECT * FROM {table_name} WHERE 1 = 0")
            for column in [one[0] for one in cursor.description or ()]:
                name = connection.ops.quote_name(column)
                # INSTR: SQLite's LIKE takes `acme` for `ACME`.
                cursor.execute(f"SELECT COUNT(*) FROM {table_name} WHERE INSTR({name}, %s) > 0", [text])
                if cursor.fetchone()[0]:
                    places.append(f"{table}.{column}")
    return places


def found_in_redis(text: str) -> list[str]:
    """Keys in whose name or value a text stands: every key of this test, whatever its type."""
    client = base_redis.state()
    places = []
    for name in client.scan_iter(prefixed("*"), count=1000):
        kind = client.type(name)
        value: Any = {
            "hash": client.hgetall,
            "string": client.get,
            "list": lambda key: client.lrange(key, 0, -1),
            "stream": lambda key: client.xrange(key),
            "set": client.smembers,
            "zset": lambda key: client.zrange(key, 0, -1),
        }[kind](name)
        if text in name or text in json.dumps(value, ensure_ascii=False, default=str):
            places.append(name)
    return places


def left_of(*texts: str) -> list[str]:
    return [place for text in texts for place in (*found_in_database(text), *found_in_redis(text))]


def nothing_left() -> None:
    assert left_of(SECRET, ALICE_ID) == []
    assert AgentMessage.objects.count() == 0
    assert MessageDeadLetter.objects.count() == 0


class Thread(threading.Thread):
    """Runs something with a database connection of its own, and keeps what came of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.work = work
        self.answer: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self.work()
        except BaseException as error:
            self.error = error
        finally:
            connections.close_all()

    def end(self) -> Any:
        self.join(30)
        assert not self.is_alive()
        return self
