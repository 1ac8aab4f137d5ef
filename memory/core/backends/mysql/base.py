"""MySQL and MariaDB as the core system."""

from __future__ import annotations

import threading
from typing import Any

from django.db.backends.mysql.base import DatabaseWrapper as MySQLWrapper
from django.db.backends.mysql.features import DatabaseFeatures as MySQLFeatures
from MySQLdb import Error, OperationalError

from config.base.mysql.bounded import Bounded, BoundedCursor
from memory.core.window import CoreWindow, core_read_only, refuse_unless_read, statement_seconds

_READ_ONLY = "SET SESSION TRANSACTION READ ONLY"


class ReadingCursor(BoundedCursor):
    """The driver's own cursor, for whoever reaches past Django's: no statement of theirs undoes the session."""

    owner: DatabaseWrapper

    def execute(self, query: Any, args: Any = None) -> Any:
        if not self.owner._inside:  # what sets up the session is ours
            refuse_unless_read(query if isinstance(query, str) else bytes(query).decode("utf-8", "replace"))
        return super().execute(query, args)

    def callproc(self, procname: Any, args: Any = ()) -> Any:
        raise core_read_only()


class DatabaseFeatures(MySQLFeatures):
    """No row of the core is ever locked from here."""

    has_select_for_update = False


class DatabaseWrapper(CoreWindow, Bounded, MySQLWrapper):
    features_class = DatabaseFeatures
    driver_cursor = ReadingCursor

    def answer_seconds(self) -> float:
        """Of a statement with all of its rows: the server ends it a second earlier, if it can be heard."""
        return statement_seconds() + 1

    def cut(self) -> None:
        self._lost = True

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Within CORE_CONNECT_TIMEOUT from name to greeting: the driver's own time-out begins anew with each byte that
        a server drips, and does not count the look-up of the name.

        In a thread, which goes on without us and closes what it may yet get; the breaker bounds how many there are.
        """
        made: list[Any] = []
        failed: list[BaseException] = []
        lock, given_up = threading.Lock(), False

        def connect() -> None:
            try:
                connection = super(DatabaseWrapper, self).get_new_connection(conn_params)
            except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
                failed.append(error)
                return
            with lock:
                if not given_up:
                    made.append(connection)
                    return
            connection.close()

        thread = threading.Thread(target=connect, name="core-connect", daemon=True)
        thread.start()
        thread.join(conn_params["connect_timeout"])
        with lock:
            given_up = True
        if made:
            return made[0]
        if failed:
            raise failed[0]
        raise OperationalError(2013, "the core system has not let us in in time")

    def init_connection_state(self) -> None:
        """2 statements more for each new connection: read only, and the server's own time-out for statements."""
        super().init_connection_state()
        seconds = statement_seconds()
        with self.cursor() as cursor:
            cursor.execute(_READ_ONLY)
            if self.mysql_is_mariadb:
                cursor.execute("SET SESSION max_statement_time = %s", [seconds])
            else:
                cursor.execute("SET SESSION max_execution_time = %s", [int(seconds * 1000)])

    def is_usable(self) -> bool:
        """The check of an idle connection, and the session's guard set again by it: what lifted that meanwhile holds no
        longer than to the next request. One round trip, as a ping."""
        try:
            with self.within():
                self.connection.query(_READ_ONLY)
        except Error:
            return False
        return True
