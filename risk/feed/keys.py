"""Channels of the feed. Publish/subscribe keeps nothing: `alert_outbox` in MySQL is what a reader catches up from."""

from config.base.keys import Key

PUB_ALERT = Key(
    "risk:pub:alert",
    "pub/sub",
    None,
    writers="risk.feed publisher",
    readers="anyone",
    on_loss="a message is sent once; rows not marked in alert_outbox are sent again",
)
PUB_FEED = Key(
    "risk:pub:feed",
    "pub/sub",
    None,
    writers="risk.feed publisher",
    readers="risk.feed in every ASGI process",
    on_loss="sockets see the gap in seq, at the latest with the next heartbeat, and read alert_outbox",
    scope="system",
)
PUB_SIGNED_OUT = Key(
    "risk:pub:signed-out",
    "pub/sub",
    None,
    writers="risk.feed, on log-out",
    readers="risk.feed in every ASGI process",
    on_loss="sockets look their login up with every heartbeat and close by themselves",
    scope="system",
)
PUB_ALIVE = Key(
    "risk:pub:feed-alive",
    "pub/sub",
    None,
    writers="risk.feed publisher, once a second",
    readers="risk.feed in every ASGI process",
    on_loss="after 10 s heartbeats say that the source has gone quiet",
    scope="system",
)
