"""Redis keys of the sessions."""

from django.conf import settings

from config.base.keys import Key

GROUP = "persist"
LOCK_SECONDS = 30
FENCE_SECONDS = 24 * 3600

CTX = Key(
    "sess:{agent}:{session_id}:ctx",
    "hash",
    ttl=settings.SESSION_TTL_SECONDS,
    writers="memory.sessions",
    readers="agents through the API",
    on_loss="a clean context is opened; numbering goes on from MySQL and the undrained stream",
)
MSGS = Key(
    "sess:{agent}:{session_id}:msgs",
    "list",
    ttl=settings.SESSION_TTL_SECONDS,
    writers="memory.sessions",
    readers="agents through the API",
    on_loss="refilled from MySQL and the undrained stream",
)
IDS = Key(
    "sess:{agent}:{session_id}:ids",
    "hash",
    ttl=settings.SESSION_TTL_SECONDS,
    writers="memory.sessions",
    readers="memory.sessions",
    on_loss="refilled from MySQL and the undrained stream; older ids are asked from MySQL",
)
PENDING = Key(
    "sess:pending",
    "stream",
    ttl=None,
    writers="memory.sessions",
    readers="memory.sessions.drain (group persist)",
    on_loss="messages queued and not yet drained are lost; their numbers are never used again",
    scope="system",
)
EPOCH = Key(
    "sess:epoch",
    "string",
    ttl=None,
    writers="memory.sessions",
    readers="memory.sessions",
    on_loss="sessions see that Redis was emptied and number above what had been leased to it",
    scope="system",
)

LOCK = Key(
    "sess:{agent}:{session_id}:lock",
    "string",
    ttl=LOCK_SECONDS,
    writers="memory.sessions.locks",
    readers="memory.sessions.locks",
    on_loss="the holder is told when it renews; whoever takes the lock next has a higher fencing number",
)
FENCE = Key(
    "sess:{agent}:{session_id}:fence",
    "hash",
    ttl=FENCE_SECONDS,
    writers="memory.sessions.locks",
    readers="memory.sessions.locks",
    on_loss="numbers above all before are leased from MySQL",
)
# Agents' own; named here so that whatever ends a session ends them too.
DRAFT = Key(
    "sess:{agent}:{session_id}:draft",
    "string",
    ttl=24 * 3600,
    writers="agents",
    readers="agents",
    on_loss="what was being written and not yet sent",
)
HEARTBEAT = Key(
    "sess:{agent}:{session_id}:heartbeat",
    "string",
    ttl=30 * 60,
    writers="agents",
    readers="agents",
    on_loss="the agent counts as silent until it beats again",
)
SCRATCH = Key(
    "sess:capacity:{run}",
    "stream",
    ttl=3600,
    writers="memory.sessions.capacity",
    readers="nobody",
    on_loss="nothing: what a measurement would have queued",
    scope="system",
)
