"""Redis keys of admission."""

from django.conf import settings

from config.base.keys import Key

BLOCK_MIRROR_SECONDS = 15 * 60
MAX_LEASE_SECONDS = 3600
FENCE_SECONDS = 30 * 86400
_WRITER = "guard.admission"

BLOCK = Key(
    "guard:block:{actor_id}",
    "string",
    ttl=settings.ADMISSION_BLOCK_MOST_SECONDS,  # as long as the block: 15 minutes, of repeat offenders longer
    writers="guard.admission.blocks",
    readers=_WRITER,
    on_loss="actor_block in MySQL decides: seen within 5 s, and put back by the next call of the actor",
)
PAUSE = Key(
    "guard:pause:{tenant}:{agent}",
    "string",
    ttl=BLOCK_MIRROR_SECONDS,  # of a pause that ends sooner, until then
    writers="guard.admission.pauses",
    readers=_WRITER,
    on_loss="agent_pause in MySQL decides: seen within 5 s, and put back by the next call of the agent",
)
RATE = Key(
    "guard:rate:{actor_id}:{agent}",
    "string",
    ttl=max(1, settings.ADMISSION_RATE_WINDOW_MS // 1000),
    writers=_WRITER,
    readers=_WRITER,
    on_loss="the last minute's calls are forgotten",
)
HOURLY = Key(
    "guard:hourly:{actor_id}:{action}",
    "string",
    ttl=3600,
    writers=_WRITER,
    readers=_WRITER,
    on_loss="a new fixed window begins with the next call",
)
ADDRESS = Key(
    "guard:ip:{ip}:{minute}",
    "string",
    ttl=120,
    writers=_WRITER,
    readers=_WRITER,
    on_loss="this minute's calls are forgotten",
)
QUOTA = Key(
    "guard:quota:{actor_id}:{date}",
    "hash",
    ttl=49 * 3600,  # a day of 25 hours, taken while the server's clock was in the day before
    writers=_WRITER,
    readers=_WRITER,
    on_loss="what was settled that day is counted again from budget_ledger",
)
BUDGET = Key(
    "guard:budget:{tenant}:{month}",
    "hash",
    ttl=40 * 86400,
    writers=_WRITER,
    readers=_WRITER,
    on_loss="the sum comes from budget_ledger, to the unit; reservations of calls under way are forgotten",
)
TENANT_ACTIVE = Key(
    "run:tenant-active:{tenant}",
    "zset",
    ttl=86400,
    writers=_WRITER,
    readers=_WRITER,
    on_loss="running calls are told that their lease is lost when they renew it",
)
USER_ACTIVE = Key(
    "run:user-active:{tenant}:{user_id}",
    "zset",
    ttl=86400,
    writers=_WRITER,
    readers=_WRITER,
    on_loss="running calls are told that their lease is lost when they renew it",
)
REFUSED = Key(
    "guard:refused:{actor_id}",
    "hash",
    ttl=3600,
    writers=_WRITER,
    readers=_WRITER,
    on_loss="refusals that no audit row counts yet are not counted",
)
COUNTS_SECONDS = 30 * 86400
COUNTS = Key(
    "guard:admissions",
    "hash",
    ttl=COUNTS_SECONDS,
    writers="guard.admission.counting",
    readers="/metrics",
    on_loss="counters begin at 0, which Prometheus takes for a restart",
    scope="system",
)
FENCE = Key(
    "run:fence:{session_id}",
    "string",
    ttl=FENCE_SECONDS,
    writers=_WRITER,
    readers=_WRITER,
    on_loss="numbers above all before are leased from the table fence",
)
FENCE_LEASED = Key(
    "run:fence:{session_id}:leased",
    "hash",
    ttl=FENCE_SECONDS,
    writers=_WRITER,
    readers=_WRITER,
    on_loss="numbers above all before are leased from the table fence",
)
RUN = Key(
    "run:active:{run_id}",
    "hash",
    ttl=MAX_LEASE_SECONDS,
    writers=_WRITER,
    readers="memory.runs",
    on_loss="its holder is told when it renews; the next run of the session has a higher fencing number",
)
RUN_OF_SESSION = Key(
    "run:by-session:{session_id}",
    "string",
    ttl=MAX_LEASE_SECONDS,
    writers=_WRITER,
    readers="memory.runs",
    on_loss="its holder is told when it renews; the next run of the session has a higher fencing number",
)
