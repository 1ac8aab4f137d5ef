"""A database that cannot hold Chinese is refused before a table is made in it."""

from __future__ import annotations

import pytest
from django.core.checks import Tags, run_checks
from django.db import connection


@pytest.mark.django_db(transaction=True)
def test_a_latin1_database_is_refused_by_the_checks_of_migrate() -> None:
    def said() -> list[str]:
        return [one.id or "" for one in run_checks(tags=[Tags.database], databases=["default"])]

    assert "xinghuo.E001" not in said()
    if connection.vendor != "mysql":
        return
    name = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@character_set_database, @@collation_database")
        charset, collation = cursor.fetchone()
        cursor.execute(f"ALTER DATABASE `{name}` CHARACTER SET latin1")
        try:
            assert "xinghuo.E001" in said()
        finally:
            cursor.execute(f"ALTER DATABASE `{name}` CHARACTER SET {charset} COLLATE {collation}")
