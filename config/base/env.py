"""Typed readers of the environment. Only `config/settings.py` calls them: nowhere else reads the environment."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.core.exceptions import ImproperlyConfigured

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off", ""}


def envstr(name: str, default: str = "") -> str:
    return os.environ.get(name, default)


def envbool(name: str, default: bool) -> bool:
    raw = os.environ.get(name)
    if raw is None:
        return default
    if raw.strip().lower() in _TRUE:
        return True
    if raw.strip().lower() in _FALSE:
        return False
    raise ImproperlyConfigured(f"{name}={raw!r} is neither true nor false; use 1 or 0")


def envint(name: str, default: int, *, low: int | None = None, high: int | None = None) -> int:
    raw = os.environ.get(name)
    if raw is None or raw.strip() == "":
        return default
    try:
        value = int(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{name}={raw!r} is not a whole number") from None
    if (low is not None and value < low) or (high is not None and value > high):
        raise ImproperlyConfigured(f"{name}={value} is outside {low}..{high}")
    return value


def envlimits(name: str, default: int, *, names: tuple[str, ...], low: int, high: int) -> dict[str, int]:
    """A number for each of `names`: `20` for all of them, `20,advisor=40` for all but one, `advisor=40` the same with
    the default for the others."""
    values = dict.fromkeys(names, default)
    for place, part in enumerate(envlist(name)):
        who, equals, raw = part.partition("=")
        if not equals and place == 0:
            raw = part
        elif not equals or who.strip() not in names:
            raise ImproperlyConfigured(f"{name}: {part!r} is not a number nor one of {', '.join(names)} = a number")
        try:
            value = int(raw)
        except ValueError:
            raise ImproperlyConfigured(f"{name}: {raw.strip()!r} is not a whole number") from None
        if not low <= value <= high:
            raise ImproperlyConfigured(f"{name}: {value} is outside {low}..{high}")
        if equals:
            values[who.strip()] = value
        else:
            values = dict.fromkeys(names, value)
    return values


def envnumbers(name: str, *, low: int, high: int) -> dict[str, int]:
    """Names with a number each, `alpha=30,beta=90`; empty where unset. Errors: ImproperlyConfigured."""
    values: dict[str, int] = {}
    for part in envlist(name):
        who, _equals, raw = (piece.strip() for piece in part.partition("="))
        if not who or not re.fullmatch("[0-9]{1,9}", raw) or not low <= int(raw) <= high:
            raise ImproperlyConfigured(f"{name}: {part!r} is not a name = a whole number from {low} to {high}")
        if who in values:
            raise ImproperlyConfigured(f"{name}: {who} is given twice")
        values[who] = int(raw)
    return values


def envlist(name: str, default: str = "") -> list[str]:
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


# Waiting for a lock, of a row or of a table, in a process that serves; the server's own are 50 s and a day.
LOCK_WAIT_SECONDS = 5
_CONNECT_SECONDS = 5
_STARTED_BY_HAND = {"manage.py", "django-admin"}


def serves(argv: Sequence[str]) -> bool:
    """Whether a process that was started so has callers who wait: web servers and workers, and agents' own programs.

    Not the commands of manage.py: they may read and change a whole table in one statement.
    """
    program = Path(argv[0] if argv else "")
    by_hand = program.name in _STARTED_BY_HAND or program.parts[-2:] == ("django", "__main__.py")
    return not by_hand or argv[1:2] == ["runserver"]


def database_from_url(name: str, url: str, *, timeout: int | None = None) -> dict[str, object]:
    """Django's DATABASES entry for `mysql://user:password@host:port/name` or `sqlite:///path`.

    timeout: seconds that MySQL may leave a statement without an answer before the connection counts as lost; a lock
        is then waited for LOCK_WAIT_SECONDS at most. None: as long as it takes. SQLite has its own patience.

    Errors: ImproperlyConfigured naming the variable, never the URL (it holds a password).
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ImproperlyConfigured(
            f"{name} has a port that is no number from 0 to 65535, or a host that is none; use "
            "mysql://user:password@host:3306/name"
        ) from None
    query = dict(parse_qsl(parts.query))
    if parts.scheme in {"mysql", "mariadb"}:
        database = unquote(parts.path.removeprefix("/"))
        if not re.fullmatch(r"[^/\x00]{1,64}", database):
            raise ImproperlyConfigured(f"{name} names no database; use mysql://user:password@host:3306/name")
        if not re.fullmatch(r"[0-9]{1,4}", query.get("connect_timeout", "1"), re.ASCII):
            raise ImproperlyConfigured(f"{name} has a connect_timeout that is no whole number of seconds")
        opening = "SET sql_mode='STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"
        if timeout is not None:
            # Both: `innodb_…` are rows, the other one is LOCK TABLES and ALTER TABLE.
            wait = min(LOCK_WAIT_SECONDS, timeout)
            opening += f", innodb_lock_wait_timeout={wait}, lock_wait_timeout={wait}"
        options: dict[str, object] = {
            "charset": "utf8mb4",
            "init_command": opening,
            # READ COMMITTED: a claim by conditional update must see what others have committed,
            # and gap locks of REPEATABLE READ deadlock concurrent inserts.
            "isolation_level": "read committed",
            "connect_timeout": int(query.get("connect_timeout", min(_CONNECT_SECONDS, timeout or _CONNECT_SECONDS))),
        }
        if timeout is not None:
            # A server, or a proxy before it, that holds the connection and says nothing.
            options |= {"read_timeout": timeout, "write_timeout": timeout}
        if "unix_socket" in query:
            options["unix_socket"] = query["unix_socket"]
        return {
            "ENGINE": "config.base.mysql",
            "NAME": database,
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": parts.hostname or "127.0.0.1",
            "PORT": str(port or 3306),
            "OPTIONS": options,
            "TEST": {"CHARSET": "utf8mb4", "COLLATION": "utf8mb4_unicode_ci"},
        }
    if parts.scheme == "sqlite":
        path = unquote(parts.path)
        if path.startswith("//") and not path.startswith("///"):
            path = path[1:]  # four slashes are how other tools write an absolute path
        if parts.netloc or path.startswith("//") or len(path) < 2 or path.endswith("/") or "\0" in path:
            raise ImproperlyConfigured(f"{name} names no file; use sqlite:///absolute/path with three slashes")
        return sqlite_database(path)
    raise ImproperlyConfigured(f"{name} has scheme {parts.scheme!r}; use mysql://user:password@host:port/name")


def sqlite_database(path: str) -> dict[str, object]:
    """SQLite as the embedded default runs it: WAL, immediate transactions, 10 s of patience for the write lock: the
    longest transaction of ours (an import's batch) takes about one."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        # A file, as in earnest: an in-memory database that threads share has table locks instead of WAL.
        "TEST": {"NAME": f"{path}.test"},
        "OPTIONS": {
            "timeout": 10,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=10000;",
        },
    }


def core_database(name: str, url: str, connect_seconds: int, statement_ms: int) -> dict[str, object]:
    """Django's DATABASES entry of the read-only core system (see memory/core/window.py).

    The server ends a statement after `statement_ms`; where it says nothing, the driver gives up a second later.
    """
    answer_seconds = -(-statement_ms // 1000) + 1
    entry = database_from_url(name, url, timeout=answer_seconds)
    options = dict(entry["OPTIONS"])  # type: ignore[call-overload]
    if entry["ENGINE"] == "config.base.mysql":
        # One statement a call: a second one could undo what the first of the session has set.
        options |= {"connect_timeout": connect_seconds, "multi_statements": False}
        return {**entry, "ENGINE": "memory.core.backends.mysql", "OPTIONS": options}
    options = {"timeout": min(10, answer_seconds), "transaction_mode": "DEFERRED"}
    return {**entry, "ENGINE": "memory.core.backends.sqlite3", "OPTIONS": options}


def envkeys(name: str) -> list[tuple[str, bytes]]:
    """Secret keys with names: `id:hex,id:hex`, as they stand. Errors: ImproperlyConfigured naming the variable and the
    place, never what stands there."""
    keys: list[tuple[str, bytes]] = []
    for place, part in enumerate(envlist(name), 1):
        key_id, colon, raw = part.partition(":")
        if not colon or not re.fullmatch(r"[A-Za-z0-9_.-]{1,24}", key_id) or key_id in dict(keys):
            raise ImproperlyConfigured(
                f"{name}: entry {place} is not id:hex with an id of its own, 1 to 24 of A-Z a-z 0-9 _ . -"
            )
        if not re.fullmatch(r"(?:[0-9a-fA-F]{2}){32,64}", raw):
            raise ImproperlyConfigured(f"{name}: the key {key_id!r} is not 32 to 64 bytes in hex; openssl rand -hex 32")
        keys.append((key_id, bytes.fromhex(raw)))
    return keys


def envaddress(name: str) -> str:
    """An address `https://host[:port][/path]` without a slash at its end, or '' where unset. Errors:
    ImproperlyConfigured."""
    return _address(name, os.environ.get(name, "").strip())


def envaddresses(name: str, *, names: Sequence[str]) -> dict[str, str]:
    """An address for some of `names`: `feishu=https://feishu.example.com,wecom=https://…`. Errors:
    ImproperlyConfigured."""
    values: dict[str, str] = {}
    for part in envlist(name):
        who, equals, raw = (piece.strip() for piece in part.partition("="))
        if not equals or who not in names:
            raise ImproperlyConfigured(f"{name}: {part!r} is not one of {', '.join(names)} = an address")
        values[who] = _address(name, raw)
    return values


def _address(name: str, raw: str) -> str:
    if not raw:
        return ""
    try:
        parts = urlsplit(raw)
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound or parts.query or parts.fragment or "@" in parts.netloc:
        raise ImproperlyConfigured(f"{name} is no address like https://xinghuo.example.com, without a login or a query")
    return raw.rstrip("/")


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def envnetworks(name: str) -> tuple[list[Network], bool]:
    """Networks in CIDR, and whether the word `unix` is among them. Errors: ImproperlyConfigured for what is none, such
    as a network with bits of a host."""
    networks, unix = [], False
    for part in envlist(name):
        if part == "unix":
            unix = True
            continue
        try:
            networks.append(ipaddress.ip_network(part))
        except ValueError:
            raise ImproperlyConfigured(
                f"{name}: {part!r} is no network; use 10.0.0.0/8, 2001:db8::/32 or unix"
            ) from None
    return networks, unix


def envredis(name: str) -> str:
    """A Redis URL, or '' where unset. Errors: ImproperlyConfigured naming the variable, never the URL's password."""
    url = os.environ.get(name, "").strip()
    if not url:
        return ""
    advice = "use redis://host:6379/0, rediss://… or unix:///path/redis.sock?db=0"
    parts = urlsplit(url)
    if parts.scheme not in {"redis", "rediss", "unix", "redis+socket"}:
        raise ImproperlyConfigured(f"{name} has scheme {parts.scheme!r}; {advice}")
    try:
        number = parts.path.lstrip("/") if parts.scheme in {"redis", "rediss"} else ""
        if (parts.port or 1) < 1 or (number and int(number) < 0):
            raise ValueError
    except ValueError:
        raise ImproperlyConfigured(f"{name}: the port or the database number is not a number; {advice}") from None
    return url


def envzone(name: str, default: str) -> str:
    """A time zone's name. Errors: ImproperlyConfigured."""
    value = os.environ.get(name, "") or default
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ImproperlyConfigured(f"{name}={value!r} is no time zone; use a name like Asia/Shanghai") from None
    return value


def envchoice(name: str, default: str, choices: tuple[str, ...]) -> str:
    """One of a few words, in upper case. Errors: ImproperlyConfigured that lists them."""
    value = (os.environ.get(name, "") or default).upper()
    if value not in choices:
        raise ImproperlyConfigured(f"{name}={value!r} does not exist; use {', '.join(choices)}")
    return value


def envprefix(name: str) -> str:
    """A prefix of Redis keys: parts of A-Z a-z 0-9 _ . - joined by ':'. Errors: ImproperlyConfigured."""
    value = os.environ.get(name, "")
    if value and not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}(:[A-Za-z0-9_.-]{1,64})*", value):
        raise ImproperlyConfigured(f"{name}={value!r}: use letters, digits, _ . - and ':' between parts, as in xh:prod")
    return value


def data_directory(name: str, default: Path) -> Path:
    """The directory that keeps an installation's data, made for its owner alone. Errors: ImproperlyConfigured."""
    path = Path(os.environ.get(name, "") or default).resolve()
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ImproperlyConfigured(f"{name}: cannot make {path}: {error.strerror}; name a directory of yours") from None
    return path


def redis_with_database(url: str, offset: int) -> str:
    """The same Redis server with its database number raised by `offset` (redis://, rediss:// or unix://)."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if parts.scheme == "unix":
        number = int(query.get("db", "0")) + offset
        return f"unix://{parts.path}?db={number}"
    number = int(parts.path.lstrip("/") or query.get("db", "0")) + offset
    return urlunsplit((parts.scheme, parts.netloc, f"/{number}", "", ""))


def celery_broker(url: str) -> str:
    """kombu's spelling of a Redis URL: a socket is `redis+socket://path?virtual_host=N`."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"redis+socket://{parts.path}?virtual_host={dict(parse_qsl(parts.query)).get('db', '0')}"
    return url
