"""Logins of sockets, many at once: whoever comes while others are being looked up goes with the next round."""

from __future__ import annotations

import asyncio

from risk.feed import database
from risk.feed.watch import Watcher, watchers_of

AT_ONCE = 500


class Logins:
    """Of one event loop."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Future[Watcher | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def look(self, session_key: str) -> Watcher | None:
        """Whose login it is; None where it is none. Errors: the database's."""
        future = self._asked.get(session_key)
        if future is None:
            future = self._asked[session_key] = asyncio.get_running_loop().create_future()
            if self._task is None:
                self._task = asyncio.create_task(self._serve(), name="feed-logins")
        return await asyncio.shield(future)

    async def _serve(self) -> None:
        while self._asked:
            chosen = dict(list(self._asked.items())[:AT_ONCE])
            for key in chosen:
                del self._asked[key]
            try:
                found = await database.in_database(watchers_of, chosen.keys())
            except BaseException as error:
                for future in chosen.values():
                    future.set_exception(error if isinstance(error, Exception) else ConnectionError("stopped"))
                    future.exception()  # whoever asked may have gone
                if not isinstance(error, Exception):
                    raise
                continue
            for key, future in chosen.items():
                future.set_result(found.get(key))
        self._task = None
