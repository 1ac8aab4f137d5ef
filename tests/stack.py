"""A whole installation for tests of real flows: web, workers and beat as processes, with a database and a Redis of
their own, so that a test can kill what it likes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from config.supervisor import children
from config.supervisor import process as processes
from config.supervisor.redis_server import free_port
from tests.services import RedisServer

PROJECT = Path(__file__).resolve().parent.parent
_TABLES_FROM_MODELS = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
import django
from django.conf import settings
class Nothing(dict):
    __contains__ = lambda self, app: True
    __getitem__ = lambda self, app: None
settings.MIGRATION_MODULES = Nothing()
django.setup()
from django.core.management import call_command
call_command("migrate", run_syncdb=True, verbosity=0)
"""


def until(condition: Callable[[], Any], *, seconds: float = 15.0, what: str = "") -> Any:
    """Polls `condition` until it is true and returns its value. Errors: AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what or condition}")
        time.sleep(0.05)


class LiveStack:
    """Web (uvicorn), workers (`worker`, `drain`, `publish`, `notify`) and beat, the same commands as `manage.py up`.

    url: `http://127.0.0.1:PORT`; ws_url: `ws://127.0.0.1:PORT`. env: what points a process at this installation.
    redis: its RedisServer (kill, pause, restart, empty). Nothing here touches the database or the Redis prefix of
    the test process: use `query`, `manage`, `shell` and HTTP to look at it.
    """

    def __init__(self, *, directory: Path, env: dict[str, str], redis: RedisServer) -> None:
        self.directory = directory
        self.redis = redis
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.ws_url = f"ws://127.0.0.1:{self.port}"
        self.env = {"DATA_DIR": str(directory / "var"), "SECRET_KEY": "only-for-tests", **env, "REDIS_URL": redis.url}
        for name in (
            "CACHE_REDIS_URL",
            "CHANNEL_REDIS_URL",
            "CELERY_BROKER_URL",
            "REDIS_KEY_PREFIX",
            "CORE_DATABASE_URL",
        ):
            self.env.setdefault(name, "")
        self._children = {child.name: child for child in children.all_of(host="127.0.0.1", port=self.port)}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    # --- processes ---------------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        """Starts the named children (all without names): `web`, `beat`, `worker`, `publish`, `drain`, `notify`."""
        for name in names or tuple(self._children):
            running = self._processes.get(name)
            assert running is None or running.poll() is not None, f"{name} runs already"
            with (self.directory / f"{name}.log").open("ab") as log:
                self._processes[name] = processes.start(
                    self._children[name].command, env=self.env, cwd=PROJECT, stdout=log
                )

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def kill(self, name: str) -> None:
        """SIGKILL, at once."""
        processes.signal_group(self._processes[name], signal.SIGKILL)
        self._processes[name].wait()

    def stop(self, *names: str) -> None:
        """An orderly end of the named children (all without names)."""
        chosen = [self._processes[name] for name in names or tuple(self._processes) if name in self._processes]
        for running in chosen:
            if running.poll() is None:
                running.terminate()
        for running in chosen:
            processes.stop(running, patience=8)

    def log(self, name: str, size: int = 4000) -> str:
        """The end of a child's output."""
        path = self.directory / f"{name}.log"
        return path.read_text(errors="replace")[-size:] if path.exists() else ""

    def wait_until_serving(self, seconds: float = 60.0) -> None:
        """Returns when the web process answers."""

        def serving() -> bool:
            assert self._processes["web"].poll() is None, f"web stopped:\n{self.log('web')}"
            try:
                with urllib.request.urlopen(f"{self.url}/health/live", timeout=2):
                    return True
            except OSError:
                return False

        until(serving, seconds=seconds, what="the web process answers")

    # --- looking in and setting up -----------------------------------------------------------------------------

    def run(self, arguments: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs this Python with `arguments` in the stack's environment; output is captured, exit codes are yours."""
        return subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, **self.env},
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=False,
            **options,
        )

    def manage(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs `manage.py …`; with check, a non-zero exit fails the test with the output."""
        done = self.run(["manage.py", *arguments])
        assert not check or done.returncode == 0, f"manage.py {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
        return done

    def popen(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """`manage.py …` in the background, for commands that a test interrupts; it dies with the test run."""
        return processes.start([sys.executable, "manage.py", *arguments], env=self.env, cwd=PROJECT, **options)

    def make_tables(self, *, by_migrations: bool) -> None:
        """Tables by the migrations, or straight from the models where pytest was called with --no-migrations."""
        if by_migrations:
            self.manage("migrate", "-v", "0")
            return
        done = self.run(["-c", _TABLES_FROM_MODELS])
        assert done.returncode == 0, done.stderr

    def shell(self, code: str) -> str:
        """Runs Django code in the stack's environment (`manage.py shell -c`) and returns what it printed."""
        return self.manage("shell", "--no-imports", "-v", "0", "-c", code).stdout.strip()

    def agent_key(self, agent: str, actor: str = "") -> str:
        """A new key of an agent service, bound to `actor` when one is given."""
        return self.shell(
            f"from guard.access.services import issue_key\nprint(issue_key(agent={agent!r}, actor_id={actor!r}).key)"
        ).splitlines()[-1]

    def staff(self, username: str, role: str, password: str = "correct horse battery") -> str:
        """A person of the console with a role (a group's name). Returns the password."""
        self.shell(
            "from django.contrib.auth.models import Group, User\n"
            f"user = User.objects.create_user({username!r}, password={password!r}, is_staff=True)\n"
            f"user.groups.add(Group.objects.get(name={role!r}))"
        )
        return password

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a SELECT, read through a connection of its own (autocommit): `%s` marks parameters."""
        url = self.env.get("DATABASE_URL", "")
        if url:
            import MySQLdb

            from config.base.env import database_from_url

            options = database_from_url("DATABASE_URL", url)
            connection: Any = MySQLdb.connect(
                host=options["HOST"],
                port=int(str(options["PORT"])),
                user=options["USER"],
                passwd=options["PASSWORD"],
                db=options["NAME"],
                charset="utf8mb4",
            )
            connection.autocommit(True)
        else:
            import sqlite3

            sql = sql.replace("%s", "?")
            connection = sqlite3.connect(Path(self.env["DATA_DIR"]) / "xinghuo.sqlite3", timeout=20)
        try:
            cursor = connection.cursor()
            cursor.execute(sql, tuple(parameters))
            return list(cursor.fetchall())
        finally:
            connection.close()

    def ready(self) -> dict[str, Any]:
        """The body of /health/ready, whatever its status."""
        try:
            with urllib.request.urlopen(f"{self.url}/health/ready", timeout=10) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))
