"""Redis keys of the profile caches. MySQL holds the profiles; every key here may vanish at any time."""

from __future__ import annotations

from config.base.keys import Key

L1_SECONDS = 600
L2_SECONDS = 600
L3_SECONDS = 300

# A reader that takes longer than this from its miss to its fill has lost its right to fill.
GENERATION_SECONDS = 60
# One reader loads a missing profile and the others wait for it, but no longer than this for one that died.
LEASE_SECONDS = 1.0
# How long it is remembered that MySQL has no such profile. Whoever creates it deletes that along with the value.
MISSING_SECONDS = 5

_LOSS = "read from MySQL and filled again"
_GENERATION = "fills under way are dropped; the next miss makes a new one"
_GENERATIONS = (
    "memory.profiles (on a miss, 60 s: who loads; 5 s: that there is none; the value's checksum); DEL on save"
)

L1 = Key(
    "profile:l1:{customer_id}", "string", L1_SECONDS,
    writers="memory.profiles (on a miss); DEL on save", readers="all agents that may", on_loss=_LOSS,
)  # fmt: skip
L2 = Key(
    "profile:l2:{customer_id}:{advisor_id}", "string", L2_SECONDS,
    writers="memory.profiles (on a miss); DEL on save", readers="advisor and risk agents", on_loss=_LOSS,
)  # fmt: skip
L3 = Key(
    "profile:l3:{customer_id}", "string", L3_SECONDS,
    writers="memory.profiles (on a miss); DEL on save; no internal field", readers="all agents that may", on_loss=_LOSS,
)  # fmt: skip

# What a reader saw at its miss; a writer deletes it together with the value, so that the reader cannot fill. Also who
# loads the value, and that there is none: other teams' programs find a value or no key, never a mark of ours.
L1_GENERATION = Key(
    "profile:l1:{customer_id}:gen", "string", L1_SECONDS,
    writers=_GENERATIONS, readers="memory.profiles", on_loss=_GENERATION,
)  # fmt: skip
L2_GENERATION = Key(
    "profile:l2:{customer_id}:{advisor_id}:gen", "string", L2_SECONDS,
    writers=_GENERATIONS, readers="memory.profiles", on_loss=_GENERATION,
)  # fmt: skip
L3_GENERATION = Key(
    "profile:l3:{customer_id}:gen", "string", L3_SECONDS,
    writers=_GENERATIONS, readers="memory.profiles", on_loss=_GENERATION,
)  # fmt: skip
