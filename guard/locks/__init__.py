"""One holder at a time: `with hold("import:7", ttl=60, wait=5) as lock:`, or `async with`.

A lock with a time to live can always be lost: its holder was suspended, or Redis lost it. So the holder is told
(`lock.lost`, `on_lost`, `lock.check()`, and LOCK_LOST at the end of the block), and each lock has a fencing number,
higher than all before it: who writes somewhere else passes it along, and that place refuses a lower one than it saw.
Redis away: closed, within a tenth of a second. No lock is given, and one that cannot be renewed counts as lost when its
time is over.
"""

from guard.locks.held import Lock
from guard.locks.named import acquire, hold
from guard.locks.taking import Hold

__all__ = ["Hold", "Lock", "acquire", "hold"]
