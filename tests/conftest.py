"""Fixtures of every test: a Redis key prefix of its own, and a database that can be emptied."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.db import DEFAULT_DB_ALIAS

from tests.choosing import put_long_files_first, uses_database
from tests.emptying import Emptier, teardown
from tests.own_database import OwnDatabase
from tests.services import MariaDB, RedisServer, temporary_directory
from tests.stack import LiveStack


def pytest_sessionstart(session: pytest.Session) -> None:
    from django.conf import settings

    if settings.EMBEDDED_REDIS:
        pytest.exit(
            "REDIS_URL is not set, and tests must not touch an installation's own data: "
            'run make test (ARGS="-k name"), which starts servers of its own.',
            returncode=4,
        )


def pytest_configure(config: pytest.Config) -> None:
    """Hashing a password is slow on purpose, a tenth of a second each; running installations keep the real hasher."""
    from django.conf import settings

    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--uses-database",
        action="store_true",
        help="only tests that use a database: the others give the same answer on each, and run in one run only",
    )


@pytest.hookimpl(trylast=True)  # pytest-django has an order of its own
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is marked `mariadb` needs it, also where somebody runs one file on SQLite; `--uses-database`; and where
    workers take files, the files that take longest are taken first, so that none of them is left alone at the end."""
    from django.conf import settings

    if settings.DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
        for item in items:
            if item.get_closest_marker("mariadb"):
                item.add_marker(pytest.mark.skip(reason="needs MariaDB; make test runs it there"))
    if config.getoption("uses_database"):
        without = [item for item in items if not uses_database(item)]
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if uses_database(item)]
    if os.environ.get("PYTEST_XDIST_WORKER"):
        put_long_files_first(items)


@pytest.fixture(scope="session")
def memories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each test has its AUDIT_MEMORY_DIR; `mktemp` for each would look at all before it again."""
    return tmp_path_factory.mktemp("memories")


@pytest.fixture(autouse=True)
def own_redis_prefix(settings: Any, memories: Path) -> Iterator[str]:
    """Each test has its own key prefix; its keys are removed by prefix scan, whatever else is on the server."""
    from django.utils import timezone, translation

    from config.base import redis as base_redis
    from guard.access.services import forget_principals
    from guard.access.tokens import forget_tokens
    from guard.admission.forgetting import forget_everything
    from guard.audit import links
    from guard.audit.pseudonyms import forget_pseudonyms
    from guard.audit.sealing import forget_chain
    from memory.profiles import doubts
    from memory.sessions.hanging import database
    from memory.sessions.numbering import given

    settings.REDIS_KEY_PREFIX = f"t{uuid.uuid4().hex[:12]}"
    settings.AUDIT_MEMORY_DIR = memories / settings.REDIS_KEY_PREFIX
    settings.AUDIT_MEMORY_DIR.mkdir()
    translation.deactivate()  # a request of an earlier test has left its language, and its time zone
    timezone.deactivate()
    forget_chain()
    links.forget()
    forget_principals()
    forget_pseudonyms()
    forget_tokens()
    forget_everything()
    given.forget()  # of sessions whose rows an earlier test has emptied
    base_redis.breaker.reset()
    doubts.forget()
    database.reset()
    yield settings.REDIS_KEY_PREFIX
    try:
        client = base_redis.state()
        for name in client.scan_iter(f"{settings.REDIS_KEY_PREFIX}:*", count=500):
            client.delete(name)
    except Exception:
        pass


@pytest.fixture(scope="session")
def emptier() -> Emptier:
    return Emptier()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any, emptier: Emptier) -> None:
    with django_db_blocker.unblock():
        emptier.look(DEFAULT_DB_ALIAS)


@pytest.fixture(autouse=True, scope="session")
def few_statements_empty_the_database(emptier: Emptier) -> Iterator[None]:
    """Transactional tests empty the tables afterwards: only those with rows, and past the triggers that rightly refuse
    it (see tests/emptying.py)."""
    from django.test import TransactionTestCase

    original = TransactionTestCase._fixture_teardown
    TransactionTestCase._fixture_teardown = teardown(original, emptier)  # type: ignore[method-assign]
    yield
    TransactionTestCase._fixture_teardown = original  # type: ignore[method-assign]


@pytest.fixture(autouse=True, scope="session")
def no_listener() -> Iterator[None]:
    """A server that a test runs in this process starts no listener: when it subscribes again it forgets keys, and
    tests that count queries would see it."""
    from guard.access import invalidation

    original, invalidation.listen = invalidation.listen, lambda: None
    yield
    invalidation.listen = original


@pytest.fixture(autouse=True, scope="session")
def no_teller() -> Iterator[None]:
    """No thread of admission's writes a key while a test looks at keys; tests tell counts themselves."""
    from guard.admission import counting

    counting.telling = False
    yield
    counting.telling = True


@pytest.fixture
def own_redis_server(settings: Any, tmp_path: Path) -> Iterator[RedisServer]:
    """A private redis-server: `kill()`, `stop()`, `start()` (same data, same port), `restart()`, `pause()`,
    `resume()`, `empty()` (disk lost), `client()`. REDIS_URL points at it for this test."""
    from config.base import redis as base_redis

    before = settings.REDIS_URL
    server = RedisServer(tmp_path / "redis").start()
    settings.REDIS_URL = server.url
    base_redis.forget_clients()
    yield server
    server.kill()
    settings.REDIS_URL = before
    base_redis.forget_clients()


@pytest.fixture(scope="module")
def own_database() -> Iterator[OwnDatabase]:
    with temporary_directory() as directory:
        server = MariaDB(directory / "mariadb", buffer_megabytes=64, durable=True)
        try:
            yield OwnDatabase(server.start())
        finally:
            server.stop()


@pytest.fixture
def own_database_server(transactional_db: None, own_database: OwnDatabase) -> Iterator[MariaDB]:
    """A private MariaDB with the tables of the test database: `kill()`, `stop()`, `start()` (same data, same port),
    `pause()`, `resume()`. All of this process's connections go to it for this test; a server that says nothing counts
    as away after 3 s. One for the module, put back before each test; the tests need the mark `mariadb`."""
    own_database.copy_from_default()
    own_database.reset()
    with own_database.in_use() as server:
        yield server


@pytest.fixture(scope="module")
def live_stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    """A running installation with a fresh, migrated database and a Redis of its own, one for the module.

    On MariaDB when the run is on MariaDB, else SQLite. Starting it takes some seconds, so mark its tests `slow`.
    A test that kills a child starts it again: `live_stack.kill("drain"); live_stack.start("drain")`.
    """
    from django.conf import settings as django_settings

    directory = tmp_path_factory.mktemp("stack")
    default = django_settings.DATABASES["default"]
    env = {"DATABASE_URL": ""}
    name = f"live_{uuid.uuid4().hex[:10]}"
    maria: Any = None
    if default["ENGINE"].endswith("mysql"):
        import MySQLdb

        host, port = str(default["HOST"]), int(default["PORT"])
        user, password = str(default["USER"]), str(default["PASSWORD"])
        maria = MySQLdb.connect(host=host, port=port, user=user, passwd=password)
        maria.cursor().execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
        env["DATABASE_URL"] = f"mysql://{login}@{host}:{port}/{name}"
    redis_process = RedisServer(directory / "redis").start()
    stack = LiveStack(directory=directory, env=env, redis=redis_process)
    try:
        stack.make_tables(by_migrations=not request.config.getoption("nomigrations"))
        stack.start()
        stack.wait_until_serving()
        yield stack
    finally:
        stack.stop()
        redis_process.kill()
        if maria is not None:
            maria.ping()
            maria.cursor().execute(f"DROP DATABASE IF EXISTS `{name}`")
            maria.close()
