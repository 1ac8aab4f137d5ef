"""How long this room's rows are kept."""

from config.base.retention import kept, register
from guard.locks.models import LockFence

register(kept(LockFence, "the highest fencing number of locks, a row in all", "a number must never be given twice"))
