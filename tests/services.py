"""Servers for tests: MariaDB and Redis of their own, in a temporary directory, on free ports.

Nobody's running server is used or touched. They are gone when the `with` block ends, when Ctrl-C ends it, and when
the process that started them is killed (the kernel ends them).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

from config.supervisor import process as processes
from config.supervisor import redis_server


class ServiceMissing(RuntimeError):
    """A server program is not installed; the text says which package brings it."""


class RedisServer:
    """A private redis-server that a test may kill, stop for a while and start again with the same data and port.

    AOF is on with fsync always, so that what was answered is there after `kill()`; noeviction as in production.
    """

    def __init__(self, directory: Path, *, port: int | None = None, durable: bool = True) -> None:
        """durable: fsync always. Without it, never: nobody pulls its plug, and a write never waits for the disk that
        MariaDB is busy with (with `everysec` it does, once a sync takes longer than two seconds)."""
        self.directory, self._durable = directory, durable
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = port or redis_server.free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> RedisServer:
        """Starts it (again) and returns when it answers."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        command = redis_server.arguments(redis_server.find_binary(), directory=self.directory, port=self.port)
        command[command.index("everysec")] = "always" if self._durable else "no"
        command[command.index("16")] = "64"
        with (self.directory / "redis.log").open("ab") as log:
            self.process = processes.start(command, stdout=log)
        redis_server.wait_ready(self.url, self.process)
        return self

    def kill(self) -> None:
        """SIGKILL: as when the machine's OOM killer takes it."""
        assert self.process is not None
        processes.signal_group(self.process, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """An orderly end (SIGTERM)."""
        if self.process is not None:
            processes.stop(self.process)

    def restart(self) -> None:
        """Stops it and starts it with the same data and port."""
        self.stop()
        self.start()

    def empty(self) -> None:
        """Stops it, loses its disk, and starts it again: what an operator's worst day looks like."""
        self.kill()
        for path in self.directory.iterdir():
            if path.name != "redis.log":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and answers nothing."""
        assert self.process is not None
        _stop_still(self.process)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def client(self, database: int = 0) -> redis.Redis:
        """A plain client of the test's own (decoding), outside the application's pools."""
        return redis.Redis(port=self.port, db=database, decode_responses=True, socket_timeout=5)


class MariaDB:
    """A private MariaDB that a test may kill, hold up and start again with the same data and port.

    `root` has no password and exists only inside this machine's loopback and temp folder.
    """

    def __init__(self, directory: Path, *, buffer_megabytes: int = 256, durable: bool = False) -> None:
        """durable: what was committed is there after `kill()`; without it, only after an orderly end."""
        self.directory = directory
        self.port = redis_server.free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._buffer_megabytes, self._durable = buffer_megabytes, durable

    @property
    def socket(self) -> Path:
        return self.directory / "s.sock"

    def url(self, name: str) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/{name}"

    def start(self) -> MariaDB:
        """Starts it (again) and returns when it answers. Cost: about a second, some more the first time."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        if not (self.directory / "data").exists():
            self._make_data()
        # Of its own: servers number their temporary tables alike, and remove what they find of them when they start.
        (self.directory / "tmp").mkdir(exist_ok=True)
        log_path = self.directory / "mariadb.log"
        with log_path.open("ab") as log:
            self.process = processes.start(self._command(), stdout=log)
        try:
            _wait_mariadb(self, log_path)
        except BaseException:
            self.kill()
            raise
        return self

    def kill(self) -> None:
        """SIGKILL: as when the machine's OOM killer takes it."""
        assert self.process is not None
        processes.signal_group(self.process, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """An orderly end (SIGTERM)."""
        if self.process is not None:
            processes.stop(self.process, patience=20)

    def pause(self) -> None:
        """SIGSTOP: it holds its connections, takes new ones, and answers nothing."""
        assert self.process is not None
        _stop_still(self.process)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def connect(self, name: str = "") -> Any:
        """A connection of the test's own (autocommit), outside the application's."""
        import MySQLdb

        where = {"host": "127.0.0.1", "port": self.port, "user": "root", "connect_timeout": 2}
        return MySQLdb.connect(**where, charset="utf8mb4", autocommit=True, **({"db": name} if name else {}))

    def _make_data(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(
            [
                *(_maria_program("mariadb-install-db"), "--no-defaults", f"--datadir={self.directory / 'data'}"),
                *("--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=64M"),
                *_user(),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise RuntimeError(f"mariadb-install-db failed:\n{(made.stdout + made.stderr)[-2000:]}")

    def _command(self) -> list[str]:
        directory = self.directory
        return [
            *(_maria_program("mariadbd"), "--no-defaults", f"--datadir={directory / 'data'}"),
            *(f"--socket={self.socket}", f"--port={self.port}", "--bind-address=127.0.0.1"),
            *(f"--pid-file={directory / 'pid'}", f"--tmpdir={directory / 'tmp'}", *_user()),
            *("--max-connections=500", "--log-bin-trust-function-creators=1"),
            # A test kills processes, never the machine: what the kernel was given survives those.
            *(f"--innodb-flush-log-at-trx-commit={2 if self._durable else 0}", "--innodb-doublewrite=0"),
            *("--skip-log-bin", f"--innodb-buffer-pool-size={self._buffer_megabytes}M"),
            *("--innodb-log-file-size=64M", "--max-allowed-packet=64M"),
            *("--character-set-server=utf8mb4", "--collation-server=utf8mb4_unicode_ci", "--skip-name-resolve"),
            "--innodb-lock-wait-timeout=10",
        ]


def _stop_still(process: subprocess.Popen[bytes]) -> None:
    """SIGSTOP, and back when none of its threads does anything any more: on a busy machine that takes a moment."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def _user() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []


def _maria_program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if not found:
        raise ServiceMissing(f"{name} is not installed: run `make test`, or install the package mariadb-server")
    return found


@contextmanager
def temporary_directory(prefix: str = "xinghuo-test-") -> Iterator[Path]:
    """A directory with a short path (a socket's name may have 108 bytes and no more), gone afterwards.

    What a run that was killed left behind is removed by the next one: nobody holds its lock any more.
    """
    parent = Path(tempfile.gettempdir())
    for left in parent.glob(f"{prefix}*"):
        with suppress(OSError), (left / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        with (path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def mariadb(directory: Path) -> Iterator[MariaDB]:
    """A fresh MariaDB under `directory`, ready to answer."""
    server = MariaDB(directory)
    try:
        yield server.start()
    finally:
        server.stop()


def _wait_mariadb(server: MariaDB, log: Path, patience: float = 60.0) -> None:
    import MySQLdb

    deadline = time.monotonic() + patience
    while True:
        try:
            server.connect().close()
            return
        except MySQLdb.OperationalError:
            assert server.process is not None
            if server.process.poll() is not None or time.monotonic() > deadline:
                tail = log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"mariadbd did not come up:\n{tail}") from None
            time.sleep(0.05)


@contextmanager
def redis_here(directory: Path) -> Iterator[RedisServer]:
    """A fresh redis-server under `directory`, ready to answer."""
    server = RedisServer(directory, durable=False)
    try:
        yield server.start()
    finally:
        with suppress(Exception):
            server.stop()


@contextmanager
def services(*, database: str = "xinghuo", with_mariadb: bool = True) -> Iterator[dict[str, str]]:
    """Both servers; gives the environment variables that point an installation at them.

    Also usable by benchmarks: `with services() as env: subprocess.run([...], env={**os.environ, **env})`.
    """
    with temporary_directory() as root, redis_here(root / "redis") as redis_process:
        env = {"REDIS_URL": redis_process.url, "DATA_DIR": str(root / "var"), "SECRET_KEY": "only-for-tests"}
        if not with_mariadb:
            yield env
            return
        with mariadb(root / "mariadb") as maria:
            import MySQLdb

            connection = MySQLdb.connect(host="127.0.0.1", port=maria.port, user="root")
            connection.cursor().execute(f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4")
            connection.close()
            yield {**env, "DATABASE_URL": maria.url(database)}


def end_on_sigterm() -> None:
    """Makes SIGTERM and SIGHUP end this process as Ctrl-C does: through the `finally` blocks."""

    def leave(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
