"""From an alert: an actor is blocked, or an AI agent paused, at once; and what was stopped goes on again.

guard decides and counts (guard.admission.blocks, pauses); here the act gets its place in the alert's timeline, in the
same transaction.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.trace import current_trace_id
from guard.access.models import Agent
from guard.access.people import admit_staff
from guard.admission import blocks, pauses
from guard.admission.models import ActorBlock, AgentPause
from risk.alerts.acting import TEXT_MIN, admit, checked_text, find
from risk.alerts.models import AlertAction, AlertType, RiskAlert
from risk.feed.events import tell_update

ADVISOR, CUSTOMER = "advisor", "customer"
ACTORS = (ADVISOR, CUSTOMER)
AGENTS = tuple(f"agent:{name}" for name in Agent.values)
REASON_MAX = 200


def actor_of(alert: RiskAlert, whom: str) -> str:
    """The actor id behind `advisor` or `customer` of this alert; '' where it has none."""
    return {ADVISOR: alert.advisor_id, CUSTOMER: alert.customer_id}.get(whom, "")


def stop(*, alert_id: str, officer: User, whom: str, seconds: int | None, text: str) -> bool:
    """Blocks the alert's advisor or customer, or pauses an AI agent (`agent:advisor`). Whether anything changed: what
    is stopped already, as long or longer, stays as it is and leaves no second row.

    seconds: for how long; of an agent None is until somebody lets it go on, of an actor guard's own period.
    Errors: FORBIDDEN (one audit row) without `risk.dispose_alert` and guard's own permission; ALERT_NOT_FOUND;
    INVALID_REQUEST for `whom`, a reason of less than 10 or more than 200 characters, or a period that is too long.
    """
    return _act(alert_id, officer, whom, text, "stop", seconds)


def go_on(*, alert_id: str, officer: User, whom: str, text: str) -> bool:
    """Lifts what `stop` did. Whether there was anything to lift. Errors: as `stop`."""
    return _act(alert_id, officer, whom, text, "go_on", None)


def _act(alert_id: str, officer: User, whom: str, text: str, action: str, seconds: int | None) -> bool:
    tenant = admit(officer, action, alert_id)
    text = checked_text(text, minimum=TEXT_MIN)
    if len(text) > REASON_MAX:
        said = f"the reason has {len(text)} characters; at most {REASON_MAX} are kept"
        raise DomainError("INVALID_REQUEST", said, field="text")
    if whom not in (*ACTORS, *AGENTS):
        said = f"{str(whom)[:20]!r} is nobody to stop; use one of {', '.join((*ACTORS, *AGENTS))}"
        raise DomainError("INVALID_REQUEST", said, field="whom")
    # Before the transaction, which would take the row of a refusal along.
    permission = pauses.PAUSE if whom in AGENTS else blocks.BLOCK
    admit_staff(officer, permission, action=action, object_type="risk_alert", object_id=alert_id, by_role=True)

    def work() -> bool:
        with transaction.atomic():
            alert = find(tenant, alert_id, lock=True)
            if alert.alert_type == AlertType.DATA_QUALITY:
                raise DomainError("ALERT_NOT_FOUND", "nobody is stopped for a fault in the data")
            done = _lift(alert, officer, whom) if action == "go_on" else _stop(alert, officer, whom, seconds, text)
            if done:
                AlertAction.objects.create(
                    alert=alert, action=action, from_status=alert.status, to_status=alert.status, actor=officer,
                    text=f"{whom}: {text}", alert_version=alert.version, trace_id=current_trace_id(),
                )  # fmt: skip
                tell_update(alert)
            return done

    return retry_conflicts(work, also=(IntegrityError,))


def _stop(alert: RiskAlert, officer: User, whom: str, seconds: int | None, text: str) -> bool:
    was = _end_of(alert, whom)
    now_is: ActorBlock | AgentPause
    if whom in AGENTS:
        agent = whom.partition(":")[2]
        now_is = pauses.pause_agent(tenant=alert.tenant, agent=agent, reason=text, by=officer, seconds=seconds)
    else:
        now_is = blocks.block_actor(
            tenant=alert.tenant, actor_id=_named(alert, whom), code="OFFICER", reason=text, by=officer, seconds=seconds
        )
    return was != (now_is.pk, now_is.expires_at)


def _lift(alert: RiskAlert, officer: User, whom: str) -> bool:
    if whom in AGENTS:
        return pauses.lift_pause(tenant=alert.tenant, agent=whom.partition(":")[2], by=officer)
    return blocks.lift_block(tenant=alert.tenant, actor_id=_named(alert, whom), by=officer)


def _named(alert: RiskAlert, whom: str) -> str:
    found = actor_of(alert, whom)
    if not found:
        raise DomainError("INVALID_REQUEST", f"the alert names no {whom}", field="whom")
    return found


def _end_of(alert: RiskAlert, whom: str) -> tuple[int, datetime | None] | None:
    rows: Any
    if whom in AGENTS:
        rows = AgentPause.objects.filter(tenant=alert.tenant, agent=whom.partition(":")[2], open=1)
    else:
        rows = ActorBlock.objects.filter(tenant=alert.tenant, actor_id=_named(alert, whom), open=1)
    # Under the lock that guard takes for the same row: between two officers the second sees what the first did.
    found: tuple[int, datetime | None] | None = rows.select_for_update().values_list("pk", "expires_at").first()
    return found
