"""Typed readers of the environment. Only `config/settings.py` calls them: nowhere else reads the environment."""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

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


def envlist(name: str, default: str = "") -> list[str]:
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def database_from_url(name: str, url: str) -> dict[str, object]:
    """Django's DATABASES entry for `mysql://user:password@host:port/name` or `sqlite:///path`.

    Errors: ImproperlyConfigured naming the variable, never the URL (it holds a password).
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if parts.scheme in {"mysql", "mariadb"}:
        database = unquote(parts.path.lstrip("/"))
        if not database:
            raise ImproperlyConfigured(f"{name} names no database; use mysql://user:password@host:3306/name")
        options: dict[str, object] = {
            "charset": "utf8mb4",
            "init_command": "SET sql_mode='STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
            # READ COMMITTED: a claim by conditional update must see what others have committed,
            # and gap locks of REPEATABLE READ deadlock concurrent inserts.
            "isolation_level": "read committed",
            "connect_timeout": int(query.get("connect_timeout", "5")),
        }
        if "unix_socket" in query:
            options["unix_socket"] = query["unix_socket"]
        return {
            "ENGINE": "django.db.backends.mysql",
            "NAME": database,
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": parts.hostname or "127.0.0.1",
            "PORT": str(parts.port or 3306),
            "OPTIONS": options,
            "TEST": {"CHARSET": "utf8mb4", "COLLATION": "utf8mb4_unicode_ci"},
        }
    if parts.scheme == "sqlite":
        return sqlite_database(unquote(parts.path))
    raise ImproperlyConfigured(f"{name} has scheme {parts.scheme!r}; use mysql://user:password@host:port/name")


def sqlite_database(path: str) -> dict[str, object]:
    """SQLite as the embedded default runs it: WAL, immediate transactions, 20 s of patience for the write lock."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        # A file, as in earnest: an in-memory database that threads share has table locks instead of WAL.
        "TEST": {"NAME": f"{path}.test"},
        "OPTIONS": {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=20000;",
        },
    }


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
