"""`manage.py doctor`: what is wrong with this installation, in sentences."""

from __future__ import annotations

import json
import os
import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import redis
from django.conf import settings
from django.core.management import BaseCommand
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from config import checks
from config.checks import Result

LEAST_FREE_MEGABYTES = 500
LEAST_MARIADB = (10, 6)
LEAST_MYSQL = (8, 0)


class Command(BaseCommand):
    help = "Checks this installation: what /health/ready checks, and more. Exit code 0 when all is well, 1 when not."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        results = [check() for check in CHECKS]
        results[1:1] = checks.readiness()
        failed = [result for result in results if not result.ok]
        if options["json"]:
            body = {"ok": not failed, "checks": [asdict(result) for result in results]}
            self.stdout.write(json.dumps(body, ensure_ascii=False, indent=2))
        else:
            for result in results:
                mark = self.style.SUCCESS("ok  ") if result.ok else self.style.ERROR("FAIL")
                if result.warning:
                    mark = self.style.WARNING("warn")
                advice = f" -> {result.advice}" if result.advice and (result.warning or not result.ok) else ""
                self.stdout.write(f"{mark} {result.name}: {result.detail}{advice}")
            self.stdout.write(f"{len(results)} checks, {len(failed)} failed")
        if failed:
            sys.exit(1)


def python_version() -> Result:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Result("python", sys.version_info >= (3, 11), f"Python {version}", "use Python 3.11 or newer")


def database_version() -> Result:
    if connection.vendor == "sqlite":
        return Result("database_version", True, "SQLite, for one machine; production uses MySQL or MariaDB")
    try:
        version = tuple(connection.get_database_version())
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@character_set_database")
            charset = str(cursor.fetchone()[0])
    except DatabaseError:
        return Result("database_version", False, "not known while the database is away")
    mariadb = bool(getattr(connection, "mysql_is_mariadb", False))
    name, least = ("MariaDB", LEAST_MARIADB) if mariadb else ("MySQL", LEAST_MYSQL)
    shown = f"{name} {'.'.join(str(part) for part in version)}"
    if version < least:
        wanted = ".".join(str(part) for part in least)
        return Result("database_version", False, f"{shown} is older than {wanted}", "upgrade it")
    if charset != "utf8mb4":
        advice = "ALTER DATABASE … CHARACTER SET utf8mb4, before any data is in it"
        return Result("database_version", False, f"the database's character set is {charset}", advice)
    return Result("database_version", True, f"{shown}, {charset}")


def migrations() -> Result:
    try:
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return Result("migrations", False, "not known while the database is away")
    if plan:
        return Result("migrations", False, f"{len(plan)} migrations are not applied", "run manage.py migrate")
    return Result("migrations", True, "all applied")


def data_directory() -> Result:
    path = settings.DATA_DIR
    if not os.access(path, os.W_OK):
        return Result("data_dir", False, f"{path} is not writable", "change its owner or set DATA_DIR")
    free = shutil.disk_usage(path).free // 2**20
    return Result("data_dir", free >= LEAST_FREE_MEGABYTES, f"{path}, {free} MB free", "make room on this disk")


def _other_redis(name: str, url: str, purpose: str) -> Callable[[], Result]:
    def check() -> Result:
        client = redis.Redis.from_url(url, socket_timeout=1.0, socket_connect_timeout=1.0)
        try:
            client.ping()
        except (redis.exceptions.RedisError, OSError) as error:
            return Result(name, False, f"{purpose} does not answer ({type(error).__name__})", "check the server")
        finally:
            client.close()
        return Result(name, True, f"{purpose} answers")

    return check


def celery_broker() -> Result:
    """Through Celery's own client, which spells socket URLs in its own way."""
    from config.celery import app

    try:
        with app.connection_for_write() as broker:
            broker.ensure_connection(max_retries=1, timeout=2)
    except Exception as error:  # noqa: BLE001 - kombu raises what its transport raises
        return Result(
            "broker", False, f"the broker does not answer ({type(error).__name__})", "check CELERY_BROKER_URL"
        )
    return Result("broker", True, "the broker of the workers answers")


CHECKS: list[Callable[[], Result]] = [
    python_version,
    database_version,
    migrations,
    _other_redis("cache", settings.CACHE_REDIS_URL, "the cache Redis"),
    _other_redis("channels", settings.CHANNEL_REDIS_URL, "the Redis of the live feed"),
    celery_broker,
    data_directory,
    checks.audit_chain,
]
