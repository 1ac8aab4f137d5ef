"""A database that hangs: the first append that wants to commit what is queued waits for it, the next ones do not.

What they would commit is in the stream, whence the drain takes it; so nothing is lost by not trying.
"""

from __future__ import annotations

from config.base.breaker import Breaker

# So long after a commit that got no answer nobody tries; then one does, and the others go on without.
HOLD_SECONDS = 5.0

# Whether batches that are queued shall be committed by the appends themselves.
database = Breaker(HOLD_SECONDS)
