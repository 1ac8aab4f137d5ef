"""People of the console: their roles are groups, their tenant is a row."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, Permission, User
from django.db.models import Q

from guard.access.models import StaffMember

RISK_OFFICER = "risk_officer"
RISK_MANAGER = "risk_manager"
COMPLIANCE_AUDITOR = "compliance_auditor"
PLATFORM_ADMIN = "platform_admin"
DRAFT_REVIEWER = "draft_reviewer"

# At once, when an actor or an AI agent does harm.
OFFICERS_ACTS = (
    *("guard.view_actorblock", "guard.change_actorblock"),
    *("guard.view_agentpause", "guard.change_agentpause"),
)
# What each role may do, as Django permissions; granted after every migrate.
ROLE_PERMISSIONS: dict[str, tuple[str, ...]] = {
    # Officers speak with customers, and see one in clear for a reason and on the record. Managers look, at masks: it
    # can be granted to one of them by name.
    RISK_OFFICER: (
        *OFFICERS_ACTS,
        "risk.view_riskalert",
        "risk.dispose_alert",
        # A second officer approves what the first has proposed; who may be that can be taken from the role and granted
        # by name.
        "risk.review_alert",
        "guard.unmask_customer",
        # What the house itself promotes is no advisor's pushing: to say so decides about cases to come.
        "risk.view_campaign",
        "risk.change_campaign",
        "risk.view_holiday",
        "risk.view_riskrule",
    ),
    # They answer for what the AI agents spend: a correction of the ledger is an entry of theirs, with its reason.
    RISK_MANAGER: (
        "risk.view_riskalert",
        "guard.view_budgetledger",
        "guard.change_budgetledger",
        "risk.view_campaign",
        "risk.view_holiday",
        # Figures of rules: one manager drafts, another activates. Officers, whose work they decide, do neither; to
        # activate can be granted to one of them by name, where a house has a single manager.
        "risk.view_riskrule",
        "risk.change_riskrule",
        "risk.activate_riskrule",
        # A view of the queue that everybody finds among their own.
        "risk.share_savedview",
        # Which alerts are told outside of the console, and where: not the places themselves, which hold secrets.
        "risk.view_notifychannel",
        "risk.view_notifyrule",
        "risk.change_notifyrule",
        "risk.view_notifydelivery",
    ),
    COMPLIANCE_AUDITOR: (
        "risk.view_riskrule",
        "guard.view_auditlog",
        "guard.export_auditlog",
        "memory.view_erasurereceipt",
        "memory.view_legalhold",
        "memory.view_advisordraft",
        "memory.view_analyticsquerylog",
        "memory.view_analyticsgrant",
        # The words of analysts' statements, each for a reason and on the record: whoever audits them needs what was
        # asked. Of customers themselves an auditor still sees masks.
        "memory.view_analyticsquerytext",
    ),
    # Decides what leaves the house, and has to see to whom it goes: neither writes it nor runs the system.
    DRAFT_REVIEWER: ("memory.view_advisordraft", "memory.review_advisordraft", "guard.unmask_customer"),
    PLATFORM_ADMIN: (
        "risk.view_data_quality",
        "risk.view_holiday",
        "risk.change_holiday",
        # Where notifications go to, with the secrets of it, and whether they arrive; managers say what goes there.
        "risk.view_notifychannel",
        "risk.change_notifychannel",
        "risk.view_notifyrule",
        "risk.view_notifydelivery",
        "risk.change_notifydelivery",
        # Who runs the system answers for the record of it: seals that lag, observations that were lost.
        "guard.view_auditlog",
        "guard.export_auditlog",
        "guard.view_agentprincipal",
        "guard.add_agentprincipal",
        "guard.change_agentprincipal",
        "guard.view_staffmember",
        "guard.add_staffmember",
        "guard.change_staffmember",
        # Limits of admission, with the ledger of what was spent.
        "guard.view_admissionlimit",
        "guard.change_admissionlimit",
        "guard.view_budgetledger",
        "guard.view_actorblock",
        "guard.change_actorblock",
        "guard.view_agentpause",
        "auth.view_user",
        "auth.add_user",
        "auth.change_user",
        "auth.view_group",
        # Why a queued message could not be stored, and what becomes of it; not what it says.
        "memory.view_messagedeadletter",
        "memory.change_messagedeadletter",
        # What was erased, and what must not be.
        "memory.view_erasurereceipt",
        "memory.view_legalhold",
        "memory.change_legalhold",
        # What analysts asked of the facts, and which of them may see personal columns for a while.
        "memory.view_analyticsquerylog",
        "memory.view_analyticsgrant",
        "memory.change_analyticsgrant",
    ),
}


def tenant_of(user: AbstractBaseUser | AnonymousUser) -> str:
    """The tenant whose alerts and audit this person sees; `default` where no row says otherwise."""
    if not user.pk:
        return "default"
    row = StaffMember.objects.filter(user_id=user.pk).only("tenant").first()
    return row.tenant if row else "default"


def actor_of(user: AbstractBaseUser | AnonymousUser) -> str:
    """The actor that this person acts as through an AI agent (an advisor's id); '' where no row says so. 1 query."""
    row = StaffMember.objects.filter(user_id=user.pk).only("actor_id").first() if user.pk else None
    return row.actor_id if row else ""


def may(user: AbstractBaseUser | AnonymousUser, permission: str) -> bool:
    """Whether a person holds `app.codename` by role or by grant. Being a superuser is no role: whoever runs the
    system sees all of it and decides no case. Costs what Django caches with the user; a superuser one query of ours.
    """
    if not isinstance(user, User) or not user.is_active:
        return False
    return permission in _held(user) if user.is_superuser else user.has_perm(permission)


def _held(superuser: User) -> frozenset[str]:
    """By role and by grant; kept with the object as Django keeps other people's."""
    held: frozenset[str] | None = getattr(superuser, "_xinghuo_held", None)
    if held is None:
        found = Permission.objects.filter(Q(group__user=superuser) | Q(user=superuser)).order_by()
        held = frozenset(".".join(one) for one in found.values_list("content_type__app_label", "codename"))
        superuser._xinghuo_held = held  # type: ignore[attr-defined]
    return held


def ensure_roles(sender: Any = None, **_: Any) -> None:
    """Makes the groups and grants what is missing; takes nothing away that an administrator has added. Two queries a
    role, and one."""
    codenames = {name.partition(".")[2] for names in ROLE_PERMISSIONS.values() for name in names}
    there = Permission.objects.filter(codename__in=codenames).values_list("pk", "content_type__app_label", "codename")
    by_name = {f"{app_label}.{codename}": pk for pk, app_label, codename in there.order_by()}
    for role, names in ROLE_PERMISSIONS.items():
        group, _created = Group.objects.get_or_create(name=role)
        held = set(group.permissions.order_by().values_list("pk", flat=True))
        if missing := {by_name[name] for name in names if name in by_name} - held:
            group.permissions.add(*missing)
