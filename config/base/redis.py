"""Redis clients and Lua scripts.

One rule for every caller: Redis being away is one exception, `RedisUnavailable`, whatever the driver calls it.
What to do then (go to MySQL, refuse, carry on) is the caller's decision and is written where it is made.
"""

from __future__ import annotations

import builtins
import hashlib
import os
import re
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hiredis
import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

# A replica, a full or a still loading server cannot keep what it is given: that is "away" for a writer.
_AWAY = (ConnectionError, TimeoutError, BusyLoadingError, ReadOnlyError, OutOfMemoryError, AuthenticationError, OSError)
_AWAY_PREFIXES = ("MISCONF", "LOADING", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "UNKILLABLE", "BUSY")
# Redis 6.2 wraps what a command inside a script answered: "ERR Error running script (...): @user_script:9: -OOM ...".
_AWAY_IN_SCRIPT = re.compile(r"-(?:OOM|MISCONF|READONLY|LOADING|MASTERDOWN|NOREPLICAS) ")

# After a time-out the next callers in this process do not wait for another one: they are told at once for so long.
BREAKER_SECONDS = 1.0


class RedisUnavailable(Exception):
    """Redis did not do what was asked: down, unreachable, too slow, read-only or full."""


def is_away(error: BaseException) -> bool:
    if isinstance(error, ResponseError) and not isinstance(error, _AWAY):
        return str(error).startswith(_AWAY_PREFIXES) or _AWAY_IN_SCRIPT.search(str(error)) is not None
    return isinstance(error, _AWAY)


class Breaker:
    """Per process: remembers a time-out for a second, so that a hanging server costs one wait and not one each."""

    def __init__(self) -> None:
        self._until = 0.0

    @property
    def tripped(self) -> bool:
        return bool(self._until) and time.monotonic() < self._until

    def check(self) -> None:
        if self._until and self.tripped:
            raise RedisUnavailable("Redis timed out a moment ago")

    def trip(self) -> None:
        self._until = time.monotonic() + BREAKER_SECONDS

    def reset(self) -> None:
        self._until = 0.0


class NoBreaker(Breaker):
    """Of a client whose calls are made whatever became of the last one."""

    def trip(self) -> None:
        pass


breaker = Breaker()
_outage_listeners: list[Callable[[], None]] = []
_other_server_listeners: list[Callable[[], None]] = []
_run_ids: set[str] = set()


def on_outage(listener: Callable[[], None]) -> None:
    """Call `listener` (no arguments, must not raise) whenever this process sees Redis away."""
    _outage_listeners.append(listener)


def on_other_server(listener: Callable[[], None]) -> None:
    """Call `listener` (no arguments, must not raise) whenever this process meets a server that it has not met before:
    one that was restarted or promoted, and may have lost its newest writes."""
    _other_server_listeners.append(listener)


@contextmanager
def translated(of_client: Breaker = breaker) -> Iterator[None]:
    """Turns the driver's ways of saying "away" into RedisUnavailable; a fault in a script or command stays itself.

    of_client: the breaker of a client with a time-out of its own."""
    of_client.check()
    try:
        yield
    except (RedisError, OSError) as error:
        if not is_away(error):
            raise
        raise _unavailable(error, of_client) from error


def _unavailable(error: Exception, of_client: Breaker) -> RedisUnavailable:
    """What to raise for an error that means "away"; everybody who wants to know of outages is told.

    Not of those of an impatient client: its time-out is no outage to those who would have waited longer.
    """
    if isinstance(error, TimeoutError | builtins.TimeoutError):  # the driver's, and the socket's own
        of_client.trip()
    if of_client is breaker:
        for listener in _outage_listeners:
            listener()
    return RedisUnavailable(f"Redis is unavailable ({type(error).__name__})")


def _on_connect(connection: Any) -> None:
    """Every new connection learns which server process it reached: `connection.server_run_id`, 40 hex digits.

    A restarted or promoted server may have lost its newest writes; its run id differs. One round trip a connection.
    Empty where the account may not call INFO: a restart is then not noticed, all else works.
    """
    connection.on_connect()
    connection.unread = select.poll()
    connection.unread.register(connection._sock, select.POLLIN)
    connection.server_run_id = ""
    connection.send_command("INFO", "server")
    try:
        reply = connection.read_response()
    except (NoPermissionError, ResponseError):
        return
    text = reply.decode() if isinstance(reply, bytes) else str(reply)
    found = re.search(r"^run_id:(\w+)", text, re.MULTILINE)
    connection.server_run_id = found[1] if found else ""
    _met(connection.server_run_id)


def _met(run_id: str) -> None:
    if not run_id or run_id in _run_ids:
        return
    first = not _run_ids
    _run_ids.add(run_id)
    if not first:
        for listener in _other_server_listeners:
            listener()


class Client(redis.Redis):
    """redis-py's client, with a lane of connections that only scripts use.

    The pool's own way of handing out a connection and taking it back (metrics, events, two reads of an empty socket)
    costs as much as the round trip. A connection of the lane was taken from the pool once, stays in use there (so it
    counts towards max_connections, and closing the client closes it), and lies here between two scripts.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lane: deque[Any] = deque()
        self.breaker = breaker

    def checkout(self) -> Any:
        """A connection that is open and owes nobody an answer. Errors: the driver's own when it cannot be opened."""
        try:
            connection = self._lane.pop()
        except IndexError:
            return self.connection_pool.get_connection()
        try:
            # Something to read before anything was asked: the server closed it (a restart), or an old answer.
            if connection._sock is not None and connection.unread.poll(0):
                connection.disconnect()
            if connection._sock is None:
                connection.connect()
        except BaseException:
            self._lane.append(connection)
            raise
        return connection

    def checkin(self, connection: Any) -> None:
        self._lane.append(connection)

    def drop_lane(self) -> None:
        """In a forked child: the sockets are the parent's."""
        self._lane = deque()


_clients: dict[tuple[str, str, float | None, bool], Client] = {}
_clients_lock = threading.Lock()


def client_for(
    url: str, *, decoding_errors: str = "strict", timeout: float | None = None, breaks: bool = True
) -> Client:
    """The process-wide client of `url`: pooled, decoding UTF-8, no silent retries of its own.

    decoding_errors: `surrogateescape` for a reader that must be able to look at what is not UTF-8.
    timeout: seconds for connecting and each command, REDIS_TIMEOUT by default. A client with one of its own has a
        breaker of its own: that it gave up says nothing to those who wait longer.
    breaks: False for a client with a time-out of its own that tries each time, also right after one.

    No retries: an append that the server may have done must not be sent twice behind the caller's back.
    """
    kind = (url, decoding_errors, timeout, breaks)
    client = _clients.get(kind)
    if client is None:
        with _clients_lock:
            client = _clients.get(kind)
            if client is None:
                client = Client.from_url(
                    url,
                    decode_responses=True,
                    encoding_errors=decoding_errors,
                    socket_timeout=timeout or settings.REDIS_TIMEOUT,
                    socket_connect_timeout=timeout or settings.REDIS_TIMEOUT,
                    retry=Retry(NoBackoff(), 0),
                    health_check_interval=0,
                    max_connections=512,
                    redis_connect_func=_on_connect,
                )
                if timeout is not None:
                    client.breaker = Breaker() if breaks else NoBreaker()
                _clients[kind] = client
    return client


def state() -> Client:
    """Sessions, caches of record, streams: the Redis that runs with AOF and noeviction."""
    return client_for(settings.REDIS_URL)


def forget_clients() -> None:
    """Drop every pooled client (after a fork, or when a test moves REDIS_URL)."""
    with _clients_lock:
        for client in _clients.values():
            client.close()
        _clients.clear()
    _run_ids.clear()
    breaker.reset()


def _after_fork() -> None:
    for client in list(_clients.values()):
        client.drop_lane()


os.register_at_fork(after_in_child=_after_fork)


class _RunId:
    """Stands in a script's arguments for the run id of the server that will execute it."""

    def __repr__(self) -> str:
        return "RUN_ID"


RUN_ID = _RunId()
_INCLUDE = re.compile(r"^--@include (\w+)\n", re.MULTILINE)


class Script:
    """A Lua file as a function: one EVALSHA, and EVAL once when the server does not know it yet.

    The server keeps a script that EVAL brought, so a restart costs one larger call and no extra round trip
    beyond it. A line `--@include name` is replaced by `name.lua` of the same folder. RUN_ID as the first argument
    becomes the run id of the very server that the connection in use talks to.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self.source = _INCLUDE.sub(
            lambda found: path.with_name(f"{found[1]}.lua").read_text(encoding="utf-8"),
            path.read_text(encoding="utf-8"),
        )
        self.sha = hashlib.sha1(self.source.encode()).hexdigest()  # noqa: S324 - the protocol's own digest

    @classmethod
    def beside(cls, module_file: str, verb: str) -> Script:
        """The script `lua/{verb}.lua` in the folder of `module_file`."""
        return cls(Path(module_file).resolve().parent / "lua" / f"{verb}.lua")

    def __call__(self, client: Client, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
        """The script's answer. Cost: 1 round trip. Errors: RedisUnavailable; ResponseError for a faulty script."""
        return self._run(client, keys, args, ())[0]

    def and_then(
        self, client: Client, keys: Sequence[str], args: Sequence[Any], command: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        """The script's answer, and the one of a command sent along with it, whose texts stay bytes.

        For large answers: through Lua each element costs several times what the command itself does. Still 1 round
        trip, but no transaction: another client may come in between. The command runs whatever the script says, so it
        must be a read. An error of the command alone is a value (ResponseError): what the script did is done.
        """
        return self._run(client, keys, args, command)

    def ahead(
        self, client: Client, keys: Sequence[str], args: Sequence[Any] = (), command: tuple[Any, ...] = ()
    ) -> Underway:
        """Sends the call and returns: the server works on it while the caller does something else.

        command: sent along, and done after the script whatever that says; before it where the server did not know the
        script. `answer()` waits for both. The server does what it was asked even if nobody ever reads the answer.
        Errors: RedisUnavailable.
        """
        client.breaker.check()
        try:
            connection = client.checkout()
            try:
                packed = hiredis.pack_command(("EVALSHA", self.sha, len(keys), *keys, *args))
                if command:
                    packed += hiredis.pack_command(command)
                connection.send_packed_command((packed,), check_health=False)
            except BaseException:
                connection.disconnect()
                client.checkin(connection)
                raise
        except (RedisError, OSError) as error:
            if not is_away(error):
                raise
            raise _unavailable(error, client.breaker) from error
        return Underway(self, client, connection, keys, args, with_command=bool(command))

    def prepare(self, keys: Sequence[str], args: Sequence[str], more: int) -> Prepared:
        """A call whose first arguments are the same again and again: they are packed once.

        more: how many arguments follow, the run id of the server first.
        """
        return Prepared(self, keys, args, more)

    def _run(
        self, client: Client, keys: Sequence[str], args: Sequence[Any], command: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        """On a connection of the client's lane, without the layers of execute_command: they cost as much as the round
        trip, and the arguments must name the server of this connection."""
        client.breaker.check()
        try:
            connection = client.checkout()
            try:
                if args and args[0] is RUN_ID:
                    args = [connection.server_run_id, *args[1:]]
                try:
                    return self._exchange(connection, ("EVALSHA", self.sha, len(keys), *keys, *args), command)
                except NoScriptError:
                    return self._exchange(connection, ("EVAL", self.source, len(keys), *keys, *args), command)
            except ResponseError:
                raise  # whole answers were read: the connection is in order
            except BaseException:
                # Anything else may have left an answer unread, which the next user would take for its own.
                connection.disconnect()
                raise
            finally:
                client.checkin(connection)
        except (RedisError, OSError) as error:
            if not is_away(error):
                raise
            raise _unavailable(error, client.breaker) from error

    def _exchange(self, connection: Any, script: tuple[Any, ...], command: tuple[Any, ...]) -> tuple[Any, Any]:
        packed = hiredis.pack_command(script)
        if not command:
            connection.send_packed_command((packed,), check_health=False)
            return _whole(connection._parser.read_response()), None
        connection.send_packed_command((packed + hiredis.pack_command(command),), check_health=False)
        parser = connection._parser
        answer = parser.read_response()
        other = parser.read_response(disable_decoding=True)
        if isinstance(other, ResponseError) and is_away(other):
            raise other
        return _whole(answer), other


class Prepared:
    """See `Script.prepare`. Called with the client and the arguments that follow the run id."""

    __slots__ = ("_args", "_cut", "_head", "_keys", "_script")

    def __init__(self, script: Script, keys: Sequence[str], args: Sequence[str], more: int) -> None:
        self._script, self._keys, self._args = script, keys, args
        call: tuple[Any, ...] = ("EVALSHA", script.sha, len(keys), *keys, *args)
        head = hiredis.pack_command(call)
        count = 3 + len(keys) + len(args)
        self._head = b"*%d" % (count + more) + head[len(b"*%d" % count) :]
        self._cut = len(b"*%d\r\n" % more)

    def __call__(self, client: Client, *rest: Any) -> Any:
        """The script's answer. Cost and errors: as `Script`."""
        client.breaker.check()
        try:
            connection = client.checkout()
            try:
                rest = (connection.server_run_id, *rest)
                # A command less its count is arguments, which may follow others.
                packed = self._head + hiredis.pack_command(rest)[self._cut :]
                connection.send_packed_command((packed,), check_health=False)
                answer = connection._parser.read_response()
                if isinstance(answer, NoScriptError):
                    call = ("EVAL", self._script.source, len(self._keys), *self._keys, *self._args, *rest)
                    answer = self._script._exchange(connection, call, ())[0]
                return _whole(answer)
            except ResponseError:
                raise  # whole answers were read: the connection is in order
            except BaseException:
                connection.disconnect()
                raise
            finally:
                client.checkin(connection)
        except (RedisError, OSError) as error:
            if not is_away(error):
                raise
            raise _unavailable(error, client.breaker) from error


class Underway:
    """A call of a script whose answer has not been read yet; it has a connection of its own until then.

    As a context manager it lets go of an answer that nobody asked for: the connection is closed, since the next user
    would take that answer for its own.
    """

    def __init__(
        self,
        script: Script,
        client: Client,
        connection: Any,
        keys: Sequence[str],
        args: Sequence[Any],
        *,
        with_command: bool = False,
    ) -> None:
        self._script, self._client, self._keys, self._args = script, client, keys, args
        self._connection, self._with_command = connection, with_command

    def __enter__(self) -> Underway:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.disconnect()
            self._client.checkin(self._connection)
            self._connection = None

    def answer(self) -> tuple[Any, Any]:
        """What the script answered, and the command: None where there was none; an error of the command is a value.

        To be asked once. Errors: RedisUnavailable; ResponseError for a faulty script.
        """
        connection = self._connection
        try:
            answer = connection._parser.read_response()
            other = connection._parser.read_response() if self._with_command else None
            if isinstance(answer, NoScriptError):  # then nothing of it was done
                call = ("EVAL", self._script.source, len(self._keys), *self._keys, *self._args)
                answer = self._script._exchange(connection, call, ())[0]
            answer = _whole(answer)
        except ResponseError as error:
            self._give_back()
            if not is_away(error):
                raise
            raise _unavailable(error, self._client.breaker) from error
        except (RedisError, OSError) as error:
            self.__exit__()
            if not is_away(error):
                raise
            raise _unavailable(error, self._client.breaker) from error
        self._give_back()
        return answer, other

    def _give_back(self) -> None:
        self._client.checkin(self._connection)
        self._connection = None


def _whole(answer: Any) -> Any:
    """The parser gives a server's error back as a value (what it raises is the connection's end)."""
    if isinstance(answer, ResponseError):
        raise answer
    return answer
