"""Who may do what to a draft. HTTP asks before the body is read, services ask again.

Two kinds of reviewers: people of the console with `memory.review_advisordraft`, and, where DRAFT_PEER_REVIEW is set,
another advisor who has the customer too. Neither is ever the author.
"""

from __future__ import annotations

import unicodedata

from django.contrib.auth.models import User

from config.base.errors import DomainError
from config.base.ids import check_id
from guard.access.matrix import Action, Resource, scope_of
from guard.access.models import AgentPrincipal
from guard.access.people import record_refusal
from guard.access.roles import actor_of, may, tenant_of
from guard.access.services import Caller, authorize, is_assigned, refuse
from memory.profiles.drafts.lookalikes import look_alike
from memory.profiles.drafts.models import AdvisorDraft, ReviewStatus

REVIEW = "memory.review_advisordraft"
OBJECT = "advisor_draft"


def find(tenant: str, draft_id: str) -> AdvisorDraft:
    """1 query. Errors: INVALID_ID (422), DRAFT_NOT_FOUND (404), for another tenant's as well."""
    check_id("draft_id", draft_id)
    draft = AdvisorDraft.objects.filter(tenant=tenant, draft_id=draft_id).first()
    if draft is None:
        raise DomainError("DRAFT_NOT_FOUND")
    return draft


def may_at_all(caller: Caller, action: Action) -> None:
    """Before it is known which draft: the agent alone. Errors: AUTH_403_SCOPE (403, one audit row)."""
    if scope_of(caller.agent, Resource.DRAFT, action) is None:
        raise refuse(
            caller, "AUTH_403_SCOPE", OBJECT, "", f"the {caller.agent} agent may not {action} drafts", action=action
        )


def may_write_for(caller: Caller, customer_id: str) -> None:
    """Errors: INVALID_ID (422), AUTH_403_SCOPE, NOT_ASSIGNED (403, one audit row)."""
    check_id("customer_id", customer_id)
    authorize(caller, Resource.DRAFT, "write", object_id=customer_id, customer_id=customer_id)


def may_change(caller: Caller, draft: AdvisorDraft) -> None:
    """The author, while the customer is theirs. Errors: AUTH_403_SCOPE, NOT_OWNER, NOT_ASSIGNED."""
    authorize(
        caller, Resource.DRAFT, "write", object_id=draft.draft_id, owner_id=draft.advisor_id,
        customer_id=draft.customer_id,
    )  # fmt: skip


def may_read(caller: Caller, draft: AdvisorDraft) -> None:
    """The author; or an advisor who may review it, from its submission on. Errors: as `may_change`."""
    another = draft.advisor_id != caller.actor_id and draft.review_status != ReviewStatus.DRAFTED
    if another and scope_of(caller.agent, Resource.DRAFT_REVIEW, "read") is not None:
        authorize(caller, Resource.DRAFT_REVIEW, "read", object_id=draft.draft_id, customer_id=draft.customer_id)
        return
    authorize(
        caller, Resource.DRAFT, "read", object_id=draft.draft_id, owner_id=draft.advisor_id,
        customer_id=draft.customer_id,
    )  # fmt: skip


def may_review(by: Caller | User, draft: AdvisorDraft) -> None:
    """Errors: AUTH_403_SCOPE, NOT_ASSIGNED, FORBIDDEN, DRAFT_OWN_REVIEW (403, each one audit row)."""
    if isinstance(by, User):
        _person_may_review(by, draft)
        return
    if by.actor_id == draft.advisor_id:
        raise refuse(
            by, "DRAFT_OWN_REVIEW", OBJECT, draft.draft_id, "who wrote the draft cannot review it", action="review",
            customer_id=draft.customer_id,
        )  # fmt: skip
    authorize(by, Resource.DRAFT_REVIEW, "write", object_id=draft.draft_id, customer_id=draft.customer_id)
    if not is_bound(by):
        # Who names the actor in a header may be the author under another name.
        raise refuse(
            by, "AUTH_403_SCOPE", OBJECT, draft.draft_id, "an advisor reviews with a key that is bound to them",
            action="review", customer_id=draft.customer_id,
        )  # fmt: skip


def _person_may_review(person: User, draft: AdvisorDraft) -> None:
    if tenant_of(person) != draft.tenant:
        raise DomainError("DRAFT_NOT_FOUND")
    code = ""
    if not may(person, REVIEW):
        code = "FORBIDDEN"
    elif is_author(person, draft):
        code = "DRAFT_OWN_REVIEW"
    if code:
        record_refusal(
            person, action="review", permission=REVIEW, object_type=OBJECT, object_id=draft.draft_id, code=code
        )
        raise DomainError(code)


def is_author(person: User, draft: AdvisorDraft) -> bool:
    """By the login, the part of it before an @, or the actor that the console says this person acts as (staff member).
    1 query."""
    login = person.get_username()
    names = (login, login.partition("@")[0], actor_of(person))
    return any(name and same_person(name, draft.advisor_id) for name in names)


def same_person(login: str, actor_id: str) -> bool:
    """Whether a login is the author's, however it is spelled: closed, for a person may have chosen `Wei` for `wei`,
    or a letter of another script that looks the same."""
    folded = [unicodedata.normalize("NFKC", name).casefold().strip() for name in (login, actor_id)]
    return folded[0] == folded[1] or look_alike(login, actor_id)


def is_bound(caller: Caller) -> bool:
    """Whether the key that the call came with is one person's, and theirs. 1 query."""
    return (
        bool(caller.principal_id)
        and AgentPrincipal.objects.filter(
            pk=caller.principal_id, tenant=caller.tenant, actor_id=caller.actor_id
        ).exists()
    )


def still_assigned(caller: Caller, draft: AdvisorDraft) -> bool:
    """Asked anew, not out of what the caller remembers: the answer is for the row that is locked now. 1 query."""
    return is_assigned(tenant=caller.tenant, advisor_id=caller.actor_id, customer_id=draft.customer_id)


def no_longer(caller: Caller, draft: AdvisorDraft) -> DomainError:
    """One audit row."""
    return refuse(
        caller, "NOT_ASSIGNED", OBJECT, draft.draft_id, "the advisor has no current assignment of this customer",
        action="write", customer_id=draft.customer_id,
    )  # fmt: skip
