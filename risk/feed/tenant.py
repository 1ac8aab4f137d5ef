"""The feed of one tenant in one process: where it stands, its newest frames, and the sockets that are up with it.

A number is heard of once, prepared once, and handed to every socket that is up to date. `alert_outbox` is the truth:
what is missing between two numbers, or after Redis was away, is read from there once for all sockets. The newest
frames are kept, so that sockets that come back, or were slow, are served without a query.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from config.base.fields import canonical_json
from risk.feed import database, selectors
from risk.feed.audience import Entry, Roles, open_for
from risk.feed.wire import Chunk, Line, Prepared, chunks, prepare

logger = logging.getLogger(__name__)

KEPT = 500  # newest frames ...
KEPT_BYTES = 4 * 1024 * 1024  # ... or so many bytes of them, whichever is less
RETRY_SECONDS = 1.0  # between tries while the database is away


class Gone(Exception):
    """What comes after a number is not kept any more."""


class Socket(Protocol):
    """What a feed knows of a socket. It is up (in an audience) or on its way there by a task of its own.

    cursor: the last number that it was given; of one that is up its audience's counts."""

    line: Line
    roles: Roles
    cursor: int

    def fall_behind(self) -> None:
        """It is out of its audience and brings itself up again."""


class Audience:
    """Sockets of people with the same roles, which are all given the same. told: the last number they were given."""

    def __init__(self, roles: Roles, told: int) -> None:
        self.roles, self.told = roles, told
        self.up: set[Socket] = set()


class TenantFeed:
    """head: the last number known here. Only its methods that are `async` wait; all run in one event loop."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.head = 0
        self.sockets: set[Socket] = set()
        self._kept: list[Entry] = []  # without a hole, up to the head
        self._bytes = 0
        self._audiences: dict[Roles, Audience] = {}
        self._heard: dict[int, Entry] = {}  # before the head was known, or past a hole
        self._filling: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._flushes = False
        self._page = selectors.PAGE
        self.opened, self.opening = asyncio.Event(), asyncio.Lock()

    # --- opening and closing ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Finds out where the feed stands. 2 queries. Errors: the database's."""
        head = await database.in_database(selectors.head, tenant=self.tenant)
        after = max(0, head - KEPT // 2)
        rows: list[dict[str, Any]] = []
        while after < head and not self.opened.is_set():
            page = await database.in_database(selectors.frames_after, tenant=self.tenant, after=after)
            if not page:
                break
            rows += page
            after = page[-1]["seq"]
        if self.opened.is_set():
            return
        self.head = head
        for row in rows:
            if row["seq"] <= head:
                self._keep(Entry(row))
        if self._kept and self._kept[-1].seq != head:
            self._kept, self._bytes = [], 0
        self.opened.set()
        self._take_heard()
        # What came while it was read, and was told before this process listened.
        if rows and rows[-1]["seq"] > self.head:
            self.look()

    def close(self) -> None:
        for task in (self._filling, self._settling):
            if task is not None:
                task.cancel()

    def join(self, socket: Socket) -> int:
        """A socket that is on its way. Answers where its audience stands."""
        self.sockets.add(socket)
        return self._audience(socket.roles).told

    def leave(self, socket: Socket) -> None:
        self.sockets.discard(socket)
        self.step_out(socket)

    def _audience(self, roles: Roles) -> Audience:
        found = self._audiences.get(roles)
        if found is None:
            found = self._audiences[roles] = Audience(roles, self.head)
        return found

    # --- what is new --------------------------------------------------------------------------------------------

    def hear(self, seq: int, event: dict[str, Any]) -> None:
        """An event from Redis. Errors: KeyError, TypeError where it is none."""
        if self.opened.is_set() and seq <= self.head:
            return
        entry = Entry({**event, "seq": seq})
        if self.opened.is_set() and seq == self.head + 1 and self._filling is None:
            self._append(entry)
            return
        if len(self._heard) >= KEPT:
            self._heard.clear()  # the outbox has them
        self._heard[seq] = entry
        if self.opened.is_set():
            self.look()

    def stands_at(self, head: int) -> None:
        """Where the outbox says that the feed stands."""
        if not self.opened.is_set() or self._filling is not None:
            return
        if head > self.head:
            self.look()
        elif head < self.head:
            # Numbers never fall, unless the database was put back to an earlier state: nothing shown can be trusted.
            self._start_again(head)

    def look(self) -> None:
        """Reads what is missing from the outbox."""
        if self._filling is None and self.opened.is_set():
            self._filling = asyncio.create_task(self._fill(), name="feed-fill")

    async def _fill(self) -> None:
        try:
            while True:
                promised = max(self._heard, default=0)
                try:
                    page = await database.in_database(selectors.frames_after, tenant=self.tenant, after=self.head)
                except database.AWAY:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                for row in page:
                    if row["seq"] != self.head + 1:
                        self._start_again(row["seq"] - 1)  # what was before it has been pruned
                    self._append(Entry(row))
                if len(page) < selectors.PAGE:
                    if promised > self.head and (waits := [seq for seq in self._heard if seq > self.head]):
                        # It was sent, so it was committed before this read: it has been pruned since.
                        self._start_again(min(waits) - 1)
                    self._take_heard()
                    if not self._heard:
                        return
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("the feed could not read what is missing; the next look tries again")
            await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._filling = None

    def _take_heard(self) -> None:
        """What was heard and follows the head. What lies past a hole stays."""
        for seq in sorted(self._heard):
            if seq == self.head + 1:
                self._append(self._heard[seq])
            if seq <= self.head:
                del self._heard[seq]

    def _append(self, entry: Entry) -> None:
        self._keep(entry)
        self.head = entry.seq
        if not self._flushes:
            # Whatever else has come by then goes out with it, in one write a socket.
            self._flushes = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _keep(self, entry: Entry) -> None:
        if self._kept and self._kept[-1].seq != entry.seq - 1:
            self._kept, self._bytes = [], 0
        self._kept.append(entry)
        self._bytes += entry.size
        if len(self._kept) > 2 * KEPT or self._bytes > KEPT_BYTES:
            self._kept = self._kept[-KEPT:] if self._bytes <= KEPT_BYTES else self._kept[len(self._kept) // 2 :]
            self._bytes = sum(one.size for one in self._kept)

    def _start_again(self, head: int) -> None:
        """Everybody has to reload: the numbers up to the head are no continuation of what they have."""
        self.head = head
        self._kept, self._bytes = [], 0
        word = self._only({"type": "reset"})
        for audience in self._audiences.values():
            audience.told = head
            for socket in list(audience.up):
                socket.line.put(word)
        for socket in self.sockets:
            if socket not in self._audience(socket.roles).up:
                socket.cursor = -1  # it says so itself, when it gets there

    # --- to the sockets -----------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._flushes = False
        for audience in self._audiences.values():
            if not audience.up:
                audience.told = self.head
                continue
            entries = self._after(audience.told)
            if entries is None:  # they waited too long for how alerts stand: each reads for itself
                for socket in list(audience.up):
                    self._drop_behind(audience, socket)
                audience.told = self.head
                continue
            ready: list[tuple[int, Prepared]] = []
            for entry in entries:
                frame = entry.frame_for(audience.roles)
                if frame is None:
                    self._settle_soon()
                    break
                ready.append((entry.seq, frame))
            for chunk in chunks(ready):
                self._write(audience, chunk)
                audience.told = chunk.last

    def _write(self, audience: Audience, chunk: Chunk) -> None:
        """To everybody who is up. Those whose line is congested step out and come back when it is free."""
        slow = []
        for socket in audience.up:
            line = socket.line
            if line.congested:
                slow.append(socket)
            else:
                line.put(chunk)
        for socket in slow:
            self._drop_behind(audience, socket)

    def _drop_behind(self, audience: Audience, socket: Socket) -> None:
        socket.cursor = audience.told
        audience.up.discard(socket)
        socket.fall_behind()

    def _settle_soon(self) -> None:
        if self._settling is None:
            self._settling = asyncio.create_task(self._settle(), name="feed-settle")

    async def _settle(self) -> None:
        """Looks up how alerts stand, for those whom they do not call."""
        try:
            while waiting := [
                entry
                for audience in self._audiences.values()
                if audience.up
                for entry in open_for(self._after(audience.told) or (), audience.roles)
            ]:
                try:
                    await self.settle(waiting)
                except database.AWAY:
                    await asyncio.sleep(RETRY_SECONDS)
                self._flush()
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("how alerts stand could not be looked up; the next event tries again")
        finally:
            self._settling = None

    async def settle(self, entries: list[Entry]) -> None:
        """1 query. Errors: the database's."""
        ids = {entry.alert_id for entry in entries}
        found = await database.in_database(selectors.stands, tenant=self.tenant, alert_ids=ids)
        for entry in entries:
            entry.settle(found.get(entry.alert_id))

    def beat(self, body: dict[str, Any]) -> None:
        """A frame without a number, to all who are up: it says `head`, and they have everything up to it."""
        for audience in self._audiences.values():
            if audience.up:
                head = {"head": audience.told} if body["type"] == "heartbeat" else {}
                self._write(audience, self._only({**body, **head}))

    @staticmethod
    def _only(body: dict[str, Any]) -> Chunk:
        return next(chunks([(0, prepare(canonical_json(body)))]))

    # --- sockets on their way -----------------------------------------------------------------------------------

    def goes_up(self, socket: Socket) -> bool:
        """Whether it has everything and is up from now on."""
        audience = self._audience(socket.roles)
        if socket.cursor != audience.told:
            return False
        audience.up.add(socket)
        return True

    def step_out(self, socket: Socket) -> None:
        """The socket goes on by itself, from where it stands."""
        audience = self._audience(socket.roles)
        if socket in audience.up:
            audience.up.discard(socket)
            socket.cursor = audience.told

    def told(self, roles: Roles) -> int:
        return self._audience(roles).told

    async def after(self, cursor: int, roles: Roles) -> Chunk | None:
        """What comes after a number, a chunk of it, as far as others of these roles have been told; None where that is
        no further. Errors: Gone; the database's."""
        upto = self.told(roles)
        entries = self._after(cursor)
        if entries is None:
            limit = min(self._page, selectors.PAGE)
            after = {"tenant": self.tenant, "after": cursor, "limit": limit}
            entries = [Entry(row) for row in await database.in_database(selectors.frames_after, **after)]
            if not entries or entries[0].seq != cursor + 1:
                raise Gone
        entries = [entry for entry in entries[: selectors.PAGE] if entry.seq <= upto]
        if unsettled := open_for(entries, roles):
            await self.settle(unsettled)
        frames = [(one.seq, frame) for one in entries if (frame := one.frame_for(roles)) is not None]
        chunk = next(chunks(frames), None)
        if chunk is not None:
            self._page = max(4, 2 * len(chunk.texts))  # of long events fewer are read at once
        return chunk

    def keeps(self, cursor: int) -> bool:
        """Whether what comes after a number is at hand."""
        return self._after(cursor) is not None

    def _after(self, cursor: int) -> list[Entry] | None:
        """What is kept after a number; None where some of it is not kept."""
        if cursor >= self.head:
            return []
        if not self._kept or self._kept[0].seq > cursor + 1:
            return None
        return self._kept[cursor + 1 - self._kept[0].seq :]
