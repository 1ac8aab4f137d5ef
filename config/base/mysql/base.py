"""MySQL and MariaDB, with connections that do not stay dead.

Django drops a broken connection between two HTTP requests, and there alone: an agent's program, a worker's loop or a
websocket that uses the ORM for hours would go on with a handle that the server has closed, and be refused for good.
Here a connection on which something has failed is asked, outside of a transaction and before it is used again, whether
it still answers, and is opened anew where it does not. The call that met the failure fails as before.
Where DATABASE_TIMEOUT holds, a call as a whole takes at most twice that (bounded.py).
"""

from __future__ import annotations

from django.db.backends.mysql.base import DatabaseWrapper as MySQLWrapper

from config.base.mysql.bounded import Bounded


class DatabaseWrapper(Bounded, MySQLWrapper):
    def ensure_connection(self) -> None:
        """Costs nothing while all is well; after a failure one ping."""
        if self.errors_occurred and self.connection is not None and not self.in_atomic_block:
            self.errors_occurred = False
            if not self.is_usable():
                self.close()
        super().ensure_connection()
