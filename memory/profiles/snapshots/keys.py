"""Redis keys of the advisor snapshots, on the cache Redis. MySQL holds the last one of each pair."""

from __future__ import annotations

from django.conf import settings

from config.base.keys import Key

SNAPSHOT_SECONDS = 900
# A load that takes longer has lost its right to fill; the next reader loads then.
LEASE_SECONDS = 20

SNAPSHOT = Key(
    "cache:advisor:snapshot:{advisor_id}:{customer_id}", "string", SNAPSHOT_SECONDS, server="cache",
    writers="memory.profiles.snapshots (on a miss); DEL when an import changes the customer's facts",
    readers="the advisor agent", on_loss="read from the core and filled again",
)  # fmt: skip
SNAPSHOT_LEASE = Key(
    "cache:advisor:snapshot:{advisor_id}:{customer_id}:load", "string", LEASE_SECONDS, server="cache",
    writers="memory.profiles.snapshots (on a miss); DEL with the value", readers="memory.profiles.snapshots",
    on_loss="the load under way is not kept; the next miss makes a new one",
)  # fmt: skip
SNAPSHOT_SEEN = Key(
    "cache:advisor:snapshot:{advisor_id}:{customer_id}:seen", "string", max(1, settings.SNAPSHOT_GRACE_SECONDS),
    server="cache",
    writers="memory.profiles.snapshots (1 on a load: the advisor had the customer then; 0 on a refusal: no longer)",
    readers="memory.profiles.snapshots, while the core is away",
    on_loss="with the core away, reads of the pair's last copy are refused",
)  # fmt: skip
