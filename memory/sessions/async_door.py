"""`AsyncSessions`: what `Sessions` does, awaited.

The work runs in a few threads (`config.base.offload`): Django's ORM is synchronous, and the rules exist once. What that
costs beside an asynchronous client of Redis: docs/decisions/0011-asynchronous-door.md.

Cancelling an await: what has not begun never begins; what has begun is done whole, and the CancelledError is raised
when it is over. So an append is all there or not there, and a repeat with the same entry ids is harmless. Of
`async with sessions.lock(...)` nothing stays: see `Hold`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from config.base.offload import in_thread
from guard.access.services import Caller
from memory.sessions.branching import Compacted, Moved
from memory.sessions.context import UNSET, Context, Unset
from memory.sessions.door import DoorLock, ForkedSession, OpenedSession, Sessions
from memory.sessions.entries import Message, NewMessage
from memory.sessions.keys import LOCK_SECONDS
from memory.sessions.selectors import ACTIVE, MAX_LIMIT, Page, SessionFacts
from memory.sessions.services import Appended
from memory.sessions.treeview import TreePage


class AsyncSessions:
    """The sessions of one agent acting for one person; arguments, answers and errors are those of `Sessions`."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._sessions = Sessions(caller)

    @classmethod
    def for_agent(cls, agent: str, actor_id: str, *, tenant: str = "default") -> AsyncSessions:
        return cls(Sessions.for_agent(agent, actor_id, tenant=tenant).caller)

    async def open(self, session_id: str | None = None, *, customer_id: str | None = None) -> OpenedSession:
        return await in_thread(partial(self._sessions.open, session_id, customer_id=customer_id))

    async def get(self, session_id: str) -> SessionFacts:
        return await in_thread(partial(self._sessions.get, session_id))

    async def delete(self, session_id: str) -> None:
        await in_thread(partial(self._sessions.delete, session_id))

    async def append(
        self,
        session_id: str,
        messages: Sequence[NewMessage | Mapping[str, Any]],
        *,
        durability: str = "async",
        read_last: int = 0,
    ) -> Appended:
        return await in_thread(
            partial(self._sessions.append, session_id, messages, durability=durability, read_last=read_last)
        )

    async def read(
        self, session_id: str, *, limit: int | None = None, before_seq: int | None = None, view: str = ACTIVE
    ) -> Page:
        return await in_thread(partial(self._sessions.read, session_id, limit=limit, before_seq=before_seq, view=view))

    async def pages(self, session_id: str, *, limit: int = MAX_LIMIT, view: str = ACTIVE) -> AsyncIterator[Page]:
        before_seq: int | None = None
        while True:
            page = await self.read(session_id, limit=limit, before_seq=before_seq, view=view)
            yield page
            before_seq = page.next
            if before_seq is None:
                return

    async def messages(self, session_id: str, *, view: str = ACTIVE) -> AsyncIterator[Message]:
        async for page in self.pages(session_id, view=view):
            for message in reversed(page.messages):
                yield message

    async def context(self, session_id: str) -> Context:
        return await in_thread(partial(self._sessions.context, session_id))

    async def change_context(
        self,
        session_id: str,
        *,
        expected: str | None = None,
        intent: str | Unset | None = UNSET,
        step: int | str | Unset | None = UNSET,
        last_tool_result: Any = UNSET,
        summary: str | Unset | None = UNSET,
        slots: Mapping[str, Any] | None = None,
    ) -> Context:
        return await in_thread(
            partial(
                self._sessions.change_context,
                session_id,
                expected=expected,
                intent=intent,
                step=step,
                last_tool_result=last_tool_result,
                summary=summary,
                slots=slots,
            )
        )

    async def fork(
        self, session_id: str, *, entry_id: str | None = None, new_session_id: str | None = None
    ) -> ForkedSession:
        return await in_thread(
            partial(self._sessions.fork, session_id, entry_id=entry_id, new_session_id=new_session_id)
        )

    async def navigate(
        self, session_id: str, entry_id: str, *, summary: str | None = None, summarise: bool = False
    ) -> Moved:
        return await in_thread(
            partial(self._sessions.navigate, session_id, entry_id, summary=summary, summarise=summarise)
        )

    async def compact(
        self, session_id: str, *, keep: int | None = None, summary: str | None = None, entry_id: str | None = None
    ) -> Compacted:
        return await in_thread(
            partial(self._sessions.compact, session_id, keep=keep, summary=summary, entry_id=entry_id)
        )

    async def tree(self, session_id: str, *, limit: int = 100, after_seq: int = 0) -> TreePage:
        return await in_thread(partial(self._sessions.tree, session_id, limit=limit, after_seq=after_seq))

    def lock(
        self,
        session_id: str,
        *,
        ttl: float = LOCK_SECONDS,
        wait: float = 0.0,
        on_lost: Callable[[], None] | None = None,
    ) -> DoorLock:
        """`async with sessions.lock(session_id, wait=5) as lock:`; waiting holds no thread. The lock renews itself;
        `lock.check()` is quick, `renew()` and `release()` are the block's own and not for the event loop."""
        return self._sessions.lock(session_id, ttl=ttl, wait=wait, on_lost=on_lost)
