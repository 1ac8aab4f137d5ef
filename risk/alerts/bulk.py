"""Acts on several alerts at once, each in its own transaction: one that another officer was first at stops none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User

from config.base.errors import DomainError
from risk.alerts.acting import SERIOUS_SCORE, act, admit
from risk.alerts.judging import Judgement, needs_four_eyes
from risk.alerts.models import AlertStatus, AlertType, RiskAlert, Shelf
from risk.alerts.officers import assign, claim, decide

MOST = 50  # alerts at once (RISK.md 5)
SCORE_BELOW = SERIOUS_SCORE
CANDIDATES = 20  # alerts that one look for the next reads
LOOKS = 5


@dataclass(frozen=True)
class Picked:
    """An alert as the officer saw it. evidence_hash: for a disposition."""

    alert_id: str
    version: int
    evidence_hash: str = ""


@dataclass(frozen=True)
class Outcome:
    """error: None where it is done; else who was first, or what has changed."""

    alert_id: str
    error: DomainError | None = None


def claim_many(*, officer: User, picked: Sequence[Picked]) -> list[Outcome]:
    """`claim` for each. Errors: FORBIDDEN; INVALID_REQUEST for none, or more than MOST."""
    return _each(
        officer, "claim", picked, lambda one: claim(alert_id=one.alert_id, officer=officer, version=one.version)
    )


def assign_many(*, officer: User, picked: Sequence[Picked], to: User) -> list[Outcome]:
    """`assign` for each. Errors: as `claim_many`."""
    return _each(
        officer,
        "assign",
        picked,
        lambda one: assign(alert_id=one.alert_id, officer=officer, to=to, version=one.version),
    )


def dispose_many(
    *, officer: User, picked: Sequence[Picked], to_status: str, code: str, text: str, quiet_days: int = 0
) -> list[Outcome]:
    """One disposition with one reason for each of at most MOST alerts of one rule, all under SCORE_BELOW and none of
    which takes four eyes. Each names the evidence that the officer saw.

    1. Who may. 2. The judgement. 3. All of them qualify, or none is touched. 4. Each under its lock, where it must
    still qualify.
    Errors: FORBIDDEN; INVALID_REQUEST for what does not qualify, with `alerts`. What comes between is in the outcomes.
    """
    tenant = admit(officer, "dispose", picked[0].alert_id if picked else "")
    judgement = Judgement.of(to_status, code, text, quiet_days)
    rule = rule_of(tenant, [one.alert_id for one in picked])

    def dispose(one: Picked) -> None:
        def work(alert: RiskAlert) -> None:
            why = _unfit(alert, rule)
            if why:
                raise DomainError("INVALID_REQUEST", why, field="score", alert_id=alert.pk)
            decide(alert, officer, judgement, one.evidence_hash, at_once=len(picked))

        act(tenant, one.alert_id, one.version, work, seen_hash=one.evidence_hash)

    return _each(officer, "dispose", picked, dispose)


def rule_of(tenant: str, alert_ids: Sequence[str]) -> str:
    """The one rule of alerts that may be disposed of together. 1 query.

    Errors: INVALID_REQUEST that says what does not go together, with `alerts`; ALERT_NOT_FOUND.
    """
    _check_number(alert_ids)
    found = list(RiskAlert.objects.filter(tenant=tenant, pk__in=alert_ids).exclude(alert_type=AlertType.DATA_QUALITY))
    if len(found) < len(alert_ids):
        raise DomainError("ALERT_NOT_FOUND", f"{len(alert_ids) - len(found)} of them are no alerts of this tenant")
    rules = {rule for alert in found for rule in alert.rule_ids}
    if len(rules) != 1:
        said = f"alerts of one rule are disposed of together; these have {', '.join(sorted(rules)) or 'none'}"
        raise DomainError("INVALID_REQUEST", said, field="rule", rules=sorted(rules))
    [rule] = rules
    faults = {alert.pk: why for alert in found if (why := _unfit(alert, rule))}
    if faults:
        raise DomainError("INVALID_REQUEST", next(iter(faults.values())), field="score", alerts=sorted(faults))
    return rule


def _unfit(alert: RiskAlert, rule: str) -> str:
    if list(alert.rule_ids) != [rule]:
        return f"the alert is not of {rule} alone"
    if alert.score >= SCORE_BELOW:
        return f"the score is {alert.score}; together only alerts under {SCORE_BELOW} are disposed of"
    return "the alert takes four eyes, each by itself" if needs_four_eyes(alert) else ""


def claim_next(*, officer: User, kinds: Collection[AlertType]) -> RiskAlert | None:
    """Claims the most urgent pending alert of these kinds that nobody has and nobody has put aside; None where there is
    none. Of officers who ask at one moment each gets another.

    Cost: a query for the candidates and a transaction for each one that somebody else was first at, and one more.
    Errors: FORBIDDEN.
    """
    tenant = admit(officer, "claim", "")
    waiting = RiskAlert.objects.filter(
        tenant=tenant, status=AlertStatus.PENDING, assignee=None, shelf=Shelf.OPEN
    ).order_by("queue_at", "alert_id")
    tried: set[str] = set()
    for _look in range(LOOKS):
        candidates = [
            place for kind in kinds
            for place in waiting.filter(alert_type=kind).values_list("queue_at", "alert_id")[:CANDIDATES]
        ]  # fmt: skip
        fresh = [alert_id for _at, alert_id in sorted(candidates)[:CANDIDATES] if alert_id not in tried]
        if not fresh:
            return None
        for alert_id in fresh:
            tried.add(alert_id)
            try:
                return claim(alert_id=alert_id, officer=officer)
            except DomainError as error:
                if error.code not in ("ALERT_CONFLICT", "INVALID_TRANSITION", "VERSION_CONFLICT", "ALERT_NOT_FOUND"):
                    raise
    return None


def _each(officer: User, action: str, picked: Sequence[Picked], perform: Callable[[Picked], object]) -> list[Outcome]:
    _check_number([one.alert_id for one in picked])
    admit(officer, action, picked[0].alert_id)
    outcomes = []
    for one in picked:
        try:
            perform(one)
            outcomes.append(Outcome(one.alert_id))
        except DomainError as error:
            if error.code == "FORBIDDEN" or error.status >= 500:
                raise
            outcomes.append(Outcome(one.alert_id, error))
    return outcomes


def _check_number(alert_ids: Sequence[str]) -> None:
    if not alert_ids or len(alert_ids) > MOST or len(set(alert_ids)) < len(alert_ids):
        said = f"{len(alert_ids)} alerts are chosen; 1 to {MOST} different ones are taken at once"
        raise DomainError("INVALID_REQUEST", said, field="pick")
