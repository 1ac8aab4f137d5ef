"""Versions of rules: one person drafts, another activates. Row, audit row and word to the scanners in one transaction.

A version's life: draft -> shadow (optional; its figures stand still) -> active -> retired, when the next one is
activated. A draft or shadow that nobody wants is dropped. An older version comes back as a draft with its figures.
Every act names the revision that its person has read, and locks all versions of the rule in the tenant, so that acts
on one rule happen one after the other; unique slots hold the line where a database does not lock.
After an activation every customer (for RISK-008: advisor) is marked at low priority: live hits follow within the
scans that come, new trades first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Max

from config.base.clock import now
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.ids import check_id
from config.base.seen import seen_length
from guard.access.people import admit_staff
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from memory.profiles.drafts.policies import same_person
from risk.rules.marking import mark_everybody
from risk.rules.models import RiskRule, RuleStatus
from risk.rules.params import build, figures_of
from risk.rules.ruling import ALL_MODULES, TAKEN_FROM, own

CHANGE = "risk.change_riskrule"
ACTIVATE = "risk.activate_riskrule"
REASON_MIN, REASON_MAX = 10, 500  # characters
OPEN = (RuleStatus.DRAFT, RuleStatus.SHADOW)


@dataclass(frozen=True)
class InForce:
    """What a rule does now. version: None where all were retired. figures: as stored, complete, the rule's own.

    damaged: what is stored cannot be read, or cannot be: the rule judges nothing, and `figures` are those of its file.
    """

    version: int | None
    figures: dict[str, Any]
    is_on: bool
    damaged: bool = False


def in_force(*, tenant: str, rule_id: str) -> InForce:
    """Errors: RULE_NOT_FOUND for a rule that does not exist. One query."""
    check_rule(rule_id)
    return in_force_of(list(RiskRule.objects.filter(tenant=tenant, rule_id=rule_id)), rule_id)


def complete(rule_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """A version's figures with the rule's own for those that it does not have; without those taken from another rule.

    Errors: INVALID_REQUEST (see params.build).
    """
    module = ALL_MODULES[rule_id]
    return own(rule_id, figures_of(build(module.Params, own(rule_id, params))))


def readable(rule_id: str, params: Any) -> tuple[dict[str, Any], bool]:
    """As `complete`, and False; the figures of the rule's file, and True, where what is stored is damaged."""
    try:
        return complete(rule_id, params), False
    except DomainError:
        return complete(rule_id, {}), True


def check_rule(rule_id: str) -> str:
    """Errors: RULE_NOT_FOUND."""
    if rule_id not in ALL_MODULES:
        raise DomainError("RULE_NOT_FOUND", f"no rule {str(rule_id)[:32]!r}; there are {', '.join(ALL_MODULES)}")
    return rule_id


# --- drafting ---------------------------------------------------------------------------------------------------------


def draft_version(
    *,
    tenant: str,
    rule_id: str,
    params: Mapping[str, Any],
    reason: str,
    by: User,
    is_on: bool = True,
    base_version: int | None = None,
) -> RiskRule:
    """A new draft: the figures of the version in force (or of `base_version`) with `params` in place of some.

    is_on: False for a version that switches the rule off. base_version: 1 is also what the rule's file says.
    Errors: FORBIDDEN (403), RULE_NOT_FOUND (404), INVALID_REQUEST (422; `fields` by name), RULE_UNCHANGED (409) where
    nothing would differ from what is in force.
    """
    _admit(by, CHANGE, "draft", tenant, check_rule(rule_id))
    told: dict[str, Any] = {"action": "draft", "rule": rule_id}

    def work() -> RiskRule:
        rows = _locked(tenant, rule_id)
        now_in_force = in_force_of(rows, rule_id)
        base = now_in_force.figures if base_version is None else _figures_of_version(rows, rule_id, base_version)
        figures = _checked(rule_id, base, params, is_on, now_in_force)
        last = RiskRule.objects.filter(tenant=tenant, rule_id=rule_id).aggregate(last=Max("version"))["last"]
        row = RiskRule.objects.create(
            tenant=tenant,
            rule_id=rule_id,
            version=(last or 1) + 1,
            params=figures,
            is_on=is_on,
            reason=_reason(reason),
            base_version=now_in_force.version if base_version is None else base_version,
            editors=[by.pk],
            created_by=by,
        )
        _tell(row, Decision.DRAFTED, by, now_in_force)
        return row

    return _acted(work, tenant, rule_id, by, told)


def edit_draft(
    *, tenant: str, pk: int, revision: int, params: Mapping[str, Any], reason: str, by: User, is_on: bool = True
) -> RiskRule:
    """Sets figures of a draft; those that `params` does not name stay. by: no longer the one to activate it.

    Errors: as `draft_version`; RULE_STATUS (409) unless it is a draft, VERSION_CONFLICT (409) where it changed since
    `revision`, RULE_UNCHANGED where nothing differs from the draft as it is.
    """
    row = find(tenant=tenant, pk=pk)
    _admit(by, CHANGE, "edit", tenant, row.rule_id)

    def work() -> RiskRule:
        rows, draft = _locked_one(tenant, row, revision, (RuleStatus.DRAFT,), "edited")
        now_in_force = in_force_of(rows, draft.rule_id)
        editors = _editors(draft)
        if editors is None:
            raise DomainError("RULE_STATUS", "who has set its figures cannot be read: drop it, and draft another")
        figures = _checked(draft.rule_id, draft.params, params, is_on, now_in_force)
        before, text = complete(draft.rule_id, draft.params), _reason(reason)
        if (figures, is_on, text) == (before, draft.is_on, draft.reason):
            raise DomainError("RULE_UNCHANGED", "nothing differs from the draft as it is")
        old = InForce(draft.version, before, draft.is_on)
        _move(
            draft, RuleStatus.DRAFT,
            params=figures, is_on=is_on, reason=text, revision=draft.revision + 1,
            editors=sorted({*editors, by.pk}), edited_by=by, edited_at=now(),
        )  # fmt: skip
        _tell(draft, Decision.CHANGED, by, old)
        return draft

    return _acted(work, tenant, row.rule_id, by, {"action": "edit", "rule": row.rule_id, "version": row.version})


# --- from draft to retired --------------------------------------------------------------------------------------------


def put_in_shadow(*, tenant: str, pk: int, revision: int, by: User) -> RiskRule:
    """The draft is evaluated beside what is in force from now on, over past trades too: everybody is marked.

    Errors: FORBIDDEN, RULE_NOT_FOUND, RULE_STATUS (not a draft, one that is off, or another is in shadow already),
    VERSION_CONFLICT, RULE_UNCHANGED.
    """
    row = find(tenant=tenant, pk=pk)
    _admit(by, CHANGE, "shadow", tenant, row.rule_id)

    def work() -> RiskRule:
        rows, draft = _locked_one(tenant, row, revision, (RuleStatus.DRAFT,), "put into shadow")
        if not draft.is_on:
            raise DomainError("RULE_STATUS", "a version that switches the rule off has nothing to do in shadow")
        other = next((one for one in rows if one.status == RuleStatus.SHADOW), None)
        if other is not None:
            raise DomainError("RULE_STATUS", f"version {other.version} is in shadow; drop it or activate it first")
        now_in_force = in_force_of(rows, draft.rule_id)
        _checked(draft.rule_id, draft.params, {}, draft.is_on, now_in_force)
        _move(draft, RuleStatus.SHADOW, shadow_slot=draft.rule_id, shadowed_at=now(), marks_due=True)
        _tell(draft, Decision.SHADOWED, by, now_in_force)
        mark_everybody(draft)
        return draft

    return _acted(work, tenant, row.rule_id, by, {"action": "shadow", "rule": row.rule_id, "version": row.version})


def activate(*, tenant: str, pk: int, revision: int, seen_version: int | None, by: User) -> RiskRule:
    """Puts a draft or shadow into force, and retires what was.

    seen_version: the version in force that its person compared it with (None: all were retired).
    1. By somebody who has set none of its figures. 2. Nothing has changed since they looked: neither the version, nor
    what is in force. 3. The old one is retired, the new one takes the slot. 4. Everybody is marked. 5. After the commit
    whoever came meanwhile is marked too.
    Errors: FORBIDDEN, RULE_NOT_FOUND, RULE_OWN_VERSION (403), RULE_STATUS, VERSION_CONFLICT, RULE_UNCHANGED (409),
    INVALID_REQUEST (422) for figures that are not allowed any more.
    """
    row = find(tenant=tenant, pk=pk)
    _admit(by, ACTIVATE, "activate", tenant, row.rule_id)

    def work() -> RiskRule:
        rows, draft = _locked_one(tenant, row, revision, OPEN, "activated")
        if is_own(draft, by):
            raise DomainError("RULE_OWN_VERSION", "you have set figures of this version: somebody else activates it")
        now_in_force = in_force_of(rows, draft.rule_id)
        if now_in_force.version != seen_version:
            _since_then(f"version {now_in_force.version} is in force now, not {seen_version}", draft)
        figures = _checked(draft.rule_id, draft.params, {}, draft.is_on, now_in_force)
        moment = now()
        for old in [one for one in rows if one.status == RuleStatus.ACTIVE]:
            _move(old, RuleStatus.RETIRED, active_slot=None, retired_by=by, retired_at=moment)
            _tell(old, Decision.RETIRED, by)
        _move(
            draft, RuleStatus.ACTIVE,
            active_slot=draft.rule_id, shadow_slot=None, params=figures, activated_by=by, activated_at=moment,
            marks_due=True,
        )  # fmt: skip
        _tell(draft, Decision.ACTIVATED, by, now_in_force)
        mark_everybody(draft)
        return draft

    return _acted(work, tenant, row.rule_id, by, {"action": "activate", "rule": row.rule_id, "version": row.version})


def drop(*, tenant: str, pk: int, revision: int, by: User) -> RiskRule:
    """Takes back a draft or a shadow. What is in force is not taken away but replaced: by a version that is off.

    Errors: FORBIDDEN, RULE_NOT_FOUND, RULE_STATUS, VERSION_CONFLICT.
    """
    row = find(tenant=tenant, pk=pk)
    _admit(by, CHANGE, "drop", tenant, row.rule_id)

    def work() -> RiskRule:
        _rows, draft = _locked_one(tenant, row, revision, OPEN, "dropped")
        _move(draft, RuleStatus.DROPPED, shadow_slot=None, retired_by=by, retired_at=now())
        _tell(draft, Decision.RETIRED, by)
        return draft

    return _acted(work, tenant, row.rule_id, by, {"action": "retire", "rule": row.rule_id, "version": row.version})


def find(*, tenant: str, pk: int) -> RiskRule:
    """Errors: RULE_NOT_FOUND, also for a version of another tenant."""
    row = RiskRule.objects.filter(tenant=tenant, pk=pk).first()
    if row is None or row.rule_id not in ALL_MODULES:
        raise DomainError("RULE_NOT_FOUND", "no such version of a rule in this tenant")
    return row


def _editors(row: RiskRule) -> list[int] | None:
    """Ids of who has set figures; None where that cannot be read."""
    ids = row.editors
    return ids if isinstance(ids, list) and all(type(one) is int for one in ids) else None


def is_own(row: RiskRule, by: User) -> bool:
    """Whether this person has set figures of the version, under this login or one that reads like it. One query."""
    known = _editors(row)
    if known is None:
        return True  # closed: whose figures they are cannot be told
    editors = {*known, row.created_by_id, row.edited_by_id} - {None}
    names = User.objects.filter(pk__in=editors).values_list("username", flat=True)
    return by.pk in editors or any(same_person(by.get_username(), name) for name in names)


# --- what they share --------------------------------------------------------------------------------------------------


def _admit(by: User, permission: str, action: str, tenant: str, rule_id: str) -> None:
    check_id("tenant", tenant)
    admit_staff(by, permission, action=action, object_type="risk_rule", object_id=rule_id, tenant=tenant, by_role=True)


def _acted(work: Callable[[], RiskRule], tenant: str, rule_id: str, by: User, told: dict[str, Any]) -> RiskRule:
    """Runs an act in its transaction. A refusal is on the record, whatever happens to the transaction."""

    def attempt() -> RiskRule:
        with transaction.atomic():
            return work()

    try:
        return retry_conflicts(attempt, also=(IntegrityError,))
    except DomainError as refused:
        record(
            tenant=tenant,
            event_type=EventType.RULE_CHANGE,
            decision=Decision.REFUSED,
            actor_type=ActorType.STAFF,
            actor_id=by.get_username()[:64],
            object_type="risk_rule",
            object_id=f"{rule_id}@{told['version']}" if "version" in told else rule_id,
            code=refused.code,
            input_summary={**told, "code": refused.code, "fields": sorted(refused.extra.get("fields", {}))[:20]},
        )
        raise


def _locked(tenant: str, rule_id: str) -> list[RiskRule]:
    """All versions of the rule, locked in their order."""
    rows = RiskRule.objects.select_for_update().filter(tenant=tenant, rule_id=rule_id)
    return list(rows.order_by("version"))


def _locked_one(
    tenant: str, row: RiskRule, revision: int, allowed: tuple[RuleStatus, ...], deed: str
) -> tuple[list[RiskRule], RiskRule]:
    rows = _locked(tenant, row.rule_id)
    found = next(one for one in rows if one.pk == row.pk)
    if found.status not in allowed:
        raise DomainError(
            "RULE_STATUS", f"version {found.version} is {found.status} and cannot be {deed}", status_now=found.status
        )
    if found.revision != revision:
        _since_then(f"it is at revision {found.revision}, you have read {revision}", found)
    return rows, found


def _since_then(what: str, row: RiskRule) -> NoReturn:
    raise DomainError(
        "VERSION_CONFLICT",
        f"version {row.version} of {row.rule_id} or what it replaces has changed since you looked: {what}",
        revision=row.revision,
    )


def _move(row: RiskRule, to: RuleStatus, **changes: Any) -> None:
    """The conditional update; `row` afterwards is as stored."""
    values = {"status": to, **changes}
    moved = RiskRule.objects.filter(pk=row.pk, status=row.status, revision=row.revision).update(**values)
    if moved != 1:
        _since_then("somebody else was first", row)
    for name, value in values.items():
        setattr(row, name, value)


def in_force_of(rows: list[RiskRule], rule_id: str) -> InForce:
    """As `in_force`, from all versions of the rule in the tenant."""
    held = [row for row in rows if row.status in (RuleStatus.ACTIVE, RuleStatus.RETIRED)]
    held.sort(key=lambda row: (row.status == RuleStatus.ACTIVE, row.version))
    if not held:
        return InForce(1, complete(rule_id, {}), True)
    last = held[-1]
    figures, damaged = readable(rule_id, last.params)
    if last.status == RuleStatus.RETIRED:
        return InForce(None, figures, False, damaged)
    return InForce(last.version, figures, last.is_on, damaged)


def _figures_of_version(rows: list[RiskRule], rule_id: str, version: int) -> dict[str, Any]:
    for row in rows:
        if row.version == version:
            return complete(rule_id, row.params)
    if version == 1:
        return complete(rule_id, {})
    raise DomainError("RULE_NOT_FOUND", f"{rule_id} has no version {version}")


def _checked(
    rule_id: str, base: Mapping[str, Any], params: Mapping[str, Any], is_on: bool, now_in_force: InForce
) -> dict[str, Any]:
    """The complete figures. Errors: INVALID_REQUEST, RULE_UNCHANGED."""
    refuse_taken(rule_id, params)
    figures = complete(rule_id, {**own(rule_id, base), **params})
    if not now_in_force.damaged and (figures, is_on) == (now_in_force.figures, now_in_force.is_on):
        what = f"version {now_in_force.version}, which is in force" if now_in_force.version else "what is in force"
        raise DomainError("RULE_UNCHANGED", f"nothing differs from {what}")
    return figures


def refuse_taken(rule_id: str, params: Mapping[str, Any]) -> None:
    """Errors: INVALID_REQUEST for figures that another rule has, and this one takes from it."""
    source, taken = TAKEN_FROM.get(rule_id, ("", frozenset()))
    if strangers := sorted(taken & set(params)):
        why = f"is {source}'s: change it there, and {rule_id} follows"
        told = "; ".join(f"parameter {name} {why}" for name in strangers)
        raise DomainError("INVALID_REQUEST", told, fields=dict.fromkeys(strangers, why))


def _reason(text: str) -> str:
    text = text.strip()
    if (length := seen_length(text)) < REASON_MIN or (length := len(text)) > REASON_MAX:
        why = f"has {length} characters; it needs {REASON_MIN} to {REASON_MAX}"
        raise DomainError("INVALID_REQUEST", f"the reason {why}", fields={"reason": why})
    return text


def _tell(row: RiskRule, decision: Decision, by: User, before: InForce | None = None) -> None:
    """One `rule_change` row; `changes`: by name, the figure before and after."""
    summary: dict[str, Any] = {"rule": row.rule_id, "version": row.version, "revision": row.revision}
    if before is not None:
        after = complete(row.rule_id, row.params)
        summary |= {
            "instead_of": before.version,
            "changes": {
                name: [before.figures[name], after[name]] for name in after if after[name] != before.figures[name]
            },
            "on": [before.is_on, row.is_on],
            **({"damaged": True} if before.damaged else {}),
        }
        if decision in (Decision.DRAFTED, Decision.CHANGED):
            summary["reason"] = row.reason[:200]
    record(
        tenant=row.tenant,
        event_type=EventType.RULE_CHANGE,
        decision=decision,
        actor_type=ActorType.STAFF,
        actor_id=by.get_username()[:64],
        object_type="risk_rule",
        object_id=f"{row.rule_id}@{row.version}",
        code=row.rule_id,
        input_summary=summary,
    )
