"""Redis keys of the alerts."""

from config.base.keys import Key

DEDUP_SECONDS = 24 * 3600

DEDUP = Key(
    "risk:dedup:{customer_id}:{rule_id}:{date}",
    "string",
    DEDUP_SECONDS,
    writers="risk.alerts, after the commit",
    readers="risk agent",
    on_loss="nothing: a hint that this customer has an alert of this rule and business day; "
    "risk_alert_hit.anchor in MySQL decides",
)
