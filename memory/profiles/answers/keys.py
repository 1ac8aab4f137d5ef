"""Redis keys of the answer cache, all on CACHE_REDIS_URL: whatever is lost or evicted is a miss.

`query_hash` is a keyed hash (see hashing.py): it tells neither the question nor the customer.
"""

from __future__ import annotations

from config.base.keys import Key

ANSWER_SECONDS = 3600
LEASE_SECONDS = 60  # a model's answer takes its time; past it the next one who asks makes the answer too
EPOCH_SECONDS = 30 * 86_400
LOOKUPS_SECONDS = 35 * 86_400

ANSWER = Key(
    "cache:answer:{tenant}:{query_hash}", "string", ANSWER_SECONDS, server="cache",
    writers="memory.profiles.answers (under a lease); DEL at an erasure", readers="the agent that asked",
    on_loss="a miss: the question is answered anew",
)  # fmt: skip
ANSWER_LEASE = Key(
    "cache:answer:{tenant}:{query_hash}:lease", "string", LEASE_SECONDS, server="cache",
    writers="memory.profiles.answers (on a miss)", readers="memory.profiles.answers",
    on_loss="the answer under way is not kept",
)  # fmt: skip
EPOCH = Key(
    "cache:answer:{tenant}:{agent}:epoch", "string", EPOCH_SECONDS, server="cache",
    writers="memory.profiles.answers; replaced by a purge", readers="memory.profiles.answers",
    on_loss="as a purge: all answers of the agent are misses",
)  # fmt: skip
LOOKUPS = Key(
    "cache:answers:lookups", "hash", LOOKUPS_SECONDS, scope="system", server="cache",
    writers="memory.profiles.answers (hit, miss, wait by tenant and agent)", readers="/metrics, manage.py answers",
    on_loss="counted from 0",
)  # fmt: skip
