"""Advisor Wei writes for Alice; advisor Lin has her too; Rui reviews in the console."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, User

from guard.access.models import StaffMember
from guard.access.roles import DRAFT_REVIEWER
from guard.access.services import Caller, issue_key
from memory.profiles.drafts import services
from memory.profiles.drafts.content import Content
from memory.profiles.drafts.models import AdvisorDraft
from tests.memory.profiles.helpers import ALICE, LIN, WEI, make_assignment

WEI_CALLS = Caller("default", "advisor", WEI)
LIN_CALLS = Caller("default", "advisor", LIN)
WORDS = Content("message", "email", "亲爱的王女士:您的组合本月上涨 1.2%。", "本月报告", "alice@example.com")
OTHER_WORDS = Content("message", "email", "亲爱的王女士:请买入。", "本月报告", "alice@example.com")


def make_reviewer(username: str = "rui", tenant: str = "default") -> User:
    person = User.objects.create_user(username, password="x", is_staff=True)
    person.groups.add(Group.objects.get(name=DRAFT_REVIEWER))
    StaffMember.objects.create(user=person, tenant=tenant)
    return person


def make_draft(content: Content = WORDS, *, customer_id: str = ALICE, caller: Caller = WEI_CALLS) -> AdvisorDraft:
    if not _assigned(caller, customer_id):
        make_assignment(caller.actor_id, customer_id, caller.tenant)
    return services.create_draft(caller=caller, customer_id=customer_id, content=content)


def make_bound(caller: Caller) -> Caller:
    """The same advisor, with a key that is theirs alone."""
    issued = issue_key(agent=caller.agent, tenant=caller.tenant, actor_id=caller.actor_id)
    return Caller(caller.tenant, caller.agent, caller.actor_id, issued.principal.principal_id)


def _assigned(caller: Caller, customer_id: str) -> bool:
    from guard.access.services import is_assigned

    return is_assigned(tenant=caller.tenant, advisor_id=caller.actor_id, customer_id=customer_id)


def make_submitted(**fields: Any) -> AdvisorDraft:
    draft = make_draft(**fields)
    return services.submit_draft(caller=WEI_CALLS, draft_id=draft.draft_id, version=draft.version)


def make_approved(reviewer: User | None = None, **fields: Any) -> AdvisorDraft:
    draft = make_submitted(**fields)
    by = reviewer or make_reviewer()
    return services.approve_draft(
        by=by, draft_id=draft.draft_id, version=draft.version, content_hash=draft.content_hash
    )
