"""MySQL and MariaDB as the core system."""

from __future__ import annotations

from django.db.backends.mysql.base import DatabaseWrapper as MySQLWrapper
from django.db.backends.mysql.features import DatabaseFeatures as MySQLFeatures

from memory.core.window import CoreWindow, statement_seconds


class DatabaseFeatures(MySQLFeatures):
    """No row of the core is ever locked from here."""

    has_select_for_update = False


class DatabaseWrapper(CoreWindow, MySQLWrapper):
    features_class = DatabaseFeatures

    def init_connection_state(self) -> None:
        """2 statements more for each new connection: read only, and the server's own time-out for statements."""
        super().init_connection_state()
        seconds = statement_seconds()
        with self.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION READ ONLY")
            if self.mysql_is_mariadb:
                cursor.execute("SET SESSION max_statement_time = %s", [seconds])
            else:
                cursor.execute("SET SESSION max_execution_time = %s", [int(seconds * 1000)])
