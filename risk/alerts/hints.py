"""Hints in Redis that a customer's rule has an alert of that day: for who looks from outside, never for a decision."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from config.base.clock import business_date
from config.base.errors import DomainError
from config.base.redis import RedisUnavailable, state, translated
from risk.alerts.keys import DEDUP, DEDUP_SECONDS
from risk.alerts.merging import ADVISOR_RULES
from risk.rules.hit import Hit

logger = logging.getLogger(__name__)


def hint(tenant: str, told: Sequence[tuple[Hit, str]]) -> None:
    """Sets them, each hit with its alert, in one call.

    Open when Redis is away: a hint that is missing costs nothing, the anchors decide.
    """
    try:
        with translated():
            pipe = state().pipeline(transaction=False)
            for hit, alert_id in told:
                if hit.rule_id in ADVISOR_RULES or not hit.customer_id:
                    continue
                name = _hint_name(tenant, hit.customer_id, hit.rule_id, hit.occurred_at)
                if name:
                    pipe.set(name, alert_id, ex=DEDUP_SECONDS)
            pipe.execute()
    except RedisUnavailable as error:
        logger.debug("no risk:dedup hints: %s", error)


def _hint_name(tenant: str, customer_id: str, rule_id: str, occurred_at: datetime) -> str | None:
    try:
        return DEDUP(tenant, customer_id=customer_id, rule_id=rule_id, date=business_date(occurred_at).isoformat())
    except DomainError:
        return None  # an id of the core that no key may hold: no hint
