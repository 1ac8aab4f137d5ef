"""Redis keys of the named locks."""

from config.base.keys import Key

LOCK_SECONDS = 30  # where nobody says otherwise
MAX_LOCK_SECONDS = 3600
FENCE_SECONDS = 30 * 86400

LOCK = Key(
    "lock:{name}",
    "string",
    ttl=MAX_LOCK_SECONDS,
    writers="guard.locks",
    readers="guard.locks",
    on_loss="the holder is told when it renews; whoever takes the lock next has a higher fencing number",
    free=("name",),
)
# One row of numbers for all names: nothing grows with them, and no name is kept past its lock.
FENCE = Key(
    "guard:fence:locks",
    "hash",
    ttl=FENCE_SECONDS,
    writers="guard.locks",
    readers="guard.locks",
    on_loss="numbers above all before are leased from the table lock_fence",
    scope="system",
)
