"""No row, no decision: for each place that calls `record`, one act whose row cannot be written, and nothing is done.

Every place has to be in the table: a new one fails the last test.
"""

from __future__ import annotations

import ast
import hashlib
import io
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth import authenticate as log_in
from django.contrib.auth.models import Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError
from django.http import HttpResponseBase
from django.test import RequestFactory
from django.urls import reverse

from config.base import redis as base_redis
from config.base.clock import now
from guard.access import tokens
from guard.access.roles import RISK_MANAGER
from guard.access.services import Caller, authenticate, issue_key, revoke_key, rotate_key
from guard.access.unmasking import unmask
from guard.admission import blocks, budget, limits
from guard.admission.fences import fenced
from guard.admission.services import admit
from guard.audit.models import AuditLog, CustomerPseudonym
from memory.core.demo.stage import Deed
from memory.erasure import holds
from memory.erasure.services import erase_customer
from memory.profiles import services as profiles
from memory.profiles.drafts import services as drafts
from memory.profiles.models import CustomerProfileL1
from memory.profiles.queries import grants
from memory.profiles.queries import services as queries
from memory.profiles.queries.models import AnalyticsQueryText
from memory.sessions.dead_letters import drop_letter, retry_letter
from memory.sessions.drain import backlog, drain
from memory.sessions.models import AgentMessage
from risk.alerts import escalating, officers, snoozing
from risk.alerts.models import AlertStatus, RiskAlert
from risk.alerts.notes import add_note
from risk.alerts.profile import write_after_alert
from risk.calendar.models import Holiday
from risk.calendar.services import save_holiday
from risk.conduct.campaigns import delete_campaign, save_campaign
from risk.conduct.demo import tell as tell_of_demo
from risk.conduct.models import Campaign
from risk.conduct.services import report_trade_request
from risk.notify import dispatch as notify_dispatch
from risk.notify.models import NotifyChannel, NotifyDelivery
from risk.notify.outcomes import Outcome, Verdict
from risk.notify.services import send_again
from risk.rules import versions
from risk.rules.models import RiskRule
from tests.guard.admission.helpers import ALICE, make_limit
from tests.memory.drafts.helpers import WEI_CALLS, make_draft, make_reviewer, make_submitted
from tests.memory.profiles.helpers import ALICE as WHO
from tests.memory.profiles.helpers import WEI, make_assignment, make_caller
from tests.memory.profiles.test_wording import L2_TEXTS
from tests.memory.sessions.helpers import append, make_session
from tests.memory.sessions.test_dead_letters import make_letter, queue_raw
from tests.pruning import prune_table
from tests.risk.alerts.people import make_hit, settle
from tests.risk.console.make import (
    make_alert,
    make_auditor,
    make_client,
    make_customer,
    make_manager,
    make_officer,
    make_person,
)

pytestmark = pytest.mark.django_db(transaction=True)
PROJECT = Path(__file__).resolve().parents[3]
OPS = "manage.py"
Act = Callable[[], Any]


def issued() -> Act:
    return lambda: issue_key(agent="risk")


def rotated() -> Act:
    key = issue_key(agent="risk").principal.principal_id
    return lambda: rotate_key(principal_id=key, overlap=timedelta(hours=1), rotated_by=OPS)


def revoked() -> Act:
    key = issue_key(agent="risk").principal.principal_id
    return lambda: revoke_key(principal_id=key, revoked_by=OPS)


def of_a_key() -> Caller:
    return authenticate(key=issue_key(agent="customer").key, actor_id="alice")


def tokens_issued() -> Act:
    caller = of_a_key()
    return lambda: tokens.issue_tokens(caller=caller)


def token_revoked() -> Act:
    caller = of_a_key()
    pair = tokens.issue_tokens(caller=caller)
    return lambda: tokens.revoke_token(caller=caller, token=pair.access_token)


def family_revoked() -> Act:
    caller = of_a_key()
    pair = tokens.issue_tokens(caller=caller)
    return lambda: tokens.revoke_token(caller=caller, token=pair.refresh_token)


def used_twice() -> Act:
    pair = tokens.issue_tokens(caller=of_a_key())
    tokens.refresh_tokens(refresh_token=pair.refresh_token)
    return lambda: tokens.refresh_tokens(refresh_token=pair.refresh_token)


def agent_refused() -> Act:
    return lambda: profiles.write_l1(caller=make_caller("analyst", "x"), customer_id="alice", payload={})


def person_refused() -> Act:
    officer, letter = make_officer(), make_letter()[1]
    return lambda: drop_letter(letter_id=letter.pk, by=officer)


def unmasked() -> Act:
    make_customer("C00017")
    alert, officer = make_alert("C00017"), make_officer()
    return lambda: unmask(staff=officer, kind="risk_alert", object_id=alert.pk, reason="calling back")


def logged_in() -> Act:
    User.objects.create_user("wei", password="right", is_staff=True)
    request = RequestFactory().post("/admin/login/")
    return lambda: log_in(request, username="wei", password="right")


def role_given() -> Act:
    person, root = make_person("newcomer"), make_client(make_person("root", superuser=True))
    form = {"username": person.username, "is_active": "on", "is_staff": "on", "groups": [], "is_superuser": "on"}
    return lambda: root.post(f"/admin/auth/user/{person.pk}/change/", form | inline_of(root, person))


def inline_of(client: Any, person: User) -> dict[str, Any]:
    """What the page's own form would send besides."""
    page = client.get(f"/admin/auth/user/{person.pk}/change/")
    sent: dict[str, Any] = {}
    for formset in page.context["inline_admin_formsets"]:
        for field in formset.formset.management_form:
            sent[field.html_name] = field.value()
        for form in formset.formset.initial_forms:
            sent |= {form[name].html_name: form[name].value() or "" for name in form.fields}
    return sent


def log_exported() -> Act:
    client = make_client(make_auditor())
    return lambda: client.get("/admin/guard/auditlog/export/csv/")


def log_exported_to_a_file(tmp_path: Path) -> Act:
    def act() -> None:
        try:
            call_command("audit_export", tmp_path / "log", stdout=io.StringIO(), stderr=io.StringIO())
        finally:
            assert not list(tmp_path.iterdir())

    return act


def limit_set() -> Act:
    make_limit("rate", 5)
    return lambda: limits.set_limit(tenant="default", kind="rate", value=7, by=OPS)


def limit_retired() -> Act:
    make_limit("rate", 5)
    row = limits.AdmissionLimit.objects.get()
    return lambda: limits.retire_limit(limit_id=row.pk, tenant="default", by=OPS)


def stale_fence() -> Act:
    session = make_session(ALICE)
    return lambda: fenced(caller=ALICE, session_id=session, fence=1).__enter__()


def budget_adjusted() -> Act:
    return lambda: budget.adjust_budget(tenant="default", amount=Decimal(5), reason="x", by=OPS, reference="r-1")


def not_admitted() -> Act:
    make_limit("rate", 0)
    return lambda: admit(ALICE)


def blocked() -> Act:
    return lambda: blocks.block_actor(tenant="default", actor_id="alice", code="X", by=OPS)


def block_lifted() -> Act:
    blocks.block_actor(tenant="default", actor_id="alice", code="X", by=OPS)
    return lambda: blocks.lift_block(tenant="default", actor_id="alice", by=OPS)


def paused() -> Act:
    return lambda: blocks.pause_agent(tenant="default", agent="risk", reason="x", by=OPS)


def pause_lifted() -> Act:
    blocks.pause_agent(tenant="default", agent="risk", reason="x", by=OPS)
    return lambda: blocks.lift_pause(tenant="default", agent="risk", by=OPS)


def erased() -> Act:
    profiles.write_l1(caller=make_caller("customer", "alice"), customer_id="alice", payload={"occupation": "teacher"})
    return lambda: erase_customer(customer_id="alice", by=OPS)


def held() -> Act:
    return lambda: holds.place_hold(customer_id="alice", by=OPS, reason="x")


def hold_released() -> Act:
    hold = holds.place_hold(customer_id="alice", by=OPS, reason="x")
    return lambda: holds.release_hold(hold_id=hold.pk, by=OPS)


def profile_written() -> Act:
    alice = make_caller("customer", "alice")
    return lambda: profiles.write_l1(caller=alice, customer_id="alice", payload={"occupation": "teacher"})


def profile_refused() -> Act:
    make_assignment()
    wei, unfit = make_caller("advisor"), L2_TEXTS["stage"]
    return lambda: profiles.write_l2(caller=wei, customer_id=WHO, advisor_id=WEI, payload=unfit)


def profile_looked_at() -> Act:
    profile_written()()
    client, row = make_client(make_person("root", superuser=True)), CustomerProfileL1.objects.get()
    return lambda: client.get(f"/admin/memory/customerprofilel1/{row.pk}/change/")


def draft_made() -> Act:
    draft = make_draft()
    return lambda: drafts.submit_draft(caller=WEI_CALLS, draft_id=draft.draft_id, version=draft.version)


def draft_rejected() -> Act:
    draft, reviewer = make_submitted(), make_reviewer()
    return lambda: drafts.reject_draft(by=reviewer, draft_id=draft.draft_id, version=draft.version, reason="too bold")


def draft_looked_at() -> Act:
    draft, client = make_submitted(), make_client(make_reviewer())
    return lambda: client.get(f"/admin/memory/advisordraft/{draft.pk}/change/")


def columns_granted() -> Act:
    root = make_person("root", superuser=True)
    root.user_permissions.add(Permission.objects.get(codename=grants.GRANT.partition(".")[2]))
    return lambda: grants.grant_columns(
        by=root, tenant="default", actor_id="ana", columns=[next(iter(grants.GRANTABLE))], reason="x", days=1
    )


def query_judged() -> Act:
    return lambda: queries.check_query(caller=make_caller("analyst", "ana"), sql="DROP TABLE x")


def letter_retried() -> Act:
    letter = make_letter()[1]
    return lambda: retry_letter(letter_id=letter.pk, by=OPS)


def letter_dropped() -> Act:
    letter = make_letter()[1]
    return lambda: drop_letter(letter_id=letter.pk, by=OPS)


def letter_moved() -> Act:
    session = make_session()
    append(session, "first")
    drain()
    queue_raw(session, "clash", 1)
    waiting = backlog()

    def act() -> None:
        try:
            drain()
        finally:
            assert backlog() == waiting, "it stays in the queue"

    return act


def message_looked_at() -> Act:
    append(make_session(), "secret")
    drain()
    client, row = make_client(make_person("root", superuser=True)), AgentMessage.objects.get()
    return lambda: client.get(f"/admin/memory/agentmessage/{row.pk}/change/")


def alert_opened() -> Act:
    return lambda: settle(make_hit())


def alert_claimed() -> Act:
    alert, officer = make_alert(), make_officer()
    return lambda: officers.claim(alert_id=alert.pk, officer=officer)


def alert_act_refused() -> Act:
    alert, auditor = make_alert(), make_auditor()
    return lambda: officers.claim(alert_id=alert.pk, officer=auditor)


def alert_escalated() -> Act:
    alert = make_alert(score=85)
    return lambda: escalating.escalate_one(alert.pk, now())


def alert_woken() -> Act:
    alert = make_alert(snoozed_until=now())
    return lambda: snoozing.wake_one(alert.pk, now())


def customer_looked_at() -> Act:
    make_customer("C00017")
    client, alert = make_client(make_officer()), make_alert("C00017")
    return lambda: client.get(reverse("admin:customer", args=("alert", alert.pk)))


def alert_looked_at() -> Act:
    client, alert = make_client(make_officer()), make_alert()
    return lambda: client.get(f"/admin/risk/riskalert/{alert.pk}/change/")


def file_attached() -> Act:
    alert, officer = make_alert(), make_officer()
    file = SimpleUploadedFile("a.pdf", b"%PDF-1.7")
    return lambda: add_note(alert_id=alert.pk, officer=officer, text="from the branch", files=[file])


def file_opened() -> Act:
    client, alert = make_client(make_officer("opener")), make_alert()
    [file_id] = _attached(alert)
    return lambda: client.get(f"/admin/risk/riskalert/{alert.pk}/file/{file_id}/")


def _attached(alert: RiskAlert) -> list[str]:
    file = SimpleUploadedFile("a.pdf", b"%PDF-1.7")
    note = add_note(alert_id=alert.pk, officer=make_officer("sender"), text="from the branch", files=[file])
    return [row.pk for row in note.attachments.all()]  # type: ignore[attr-defined]


def case_file_made() -> Act:
    client, alert = make_client(make_officer()), make_alert()
    return lambda: client.post(f"/admin/risk/riskalert/{alert.pk}/casefile/")


def queue_exported() -> Act:
    client, _alert = make_client(make_officer()), make_alert()
    return lambda: client.get("/admin/risk/riskalert/export/")


def view_shared() -> Act:
    client = make_client(make_manager())
    return lambda: client.post("/admin/risk/riskalert/view/", {"name": "Ours", "shared": "1"})


# Where `record` is called, as module:function -> the acts that go through it.
def holiday_saved() -> Act:
    return lambda: save_holiday(holiday=Holiday(day=date(2026, 6, 15)), by=OPS)


def campaign_deleted() -> Act:
    day = date(2026, 6, 15)
    row = save_campaign(campaign=Campaign(product_id="p5", starts_on=day, ends_on=day, name="Summer"), by=OPS)
    return lambda: delete_campaign(campaign=row, by=OPS)


def trade_reported() -> Act:
    caller = Caller("default", "advisor", "wei")
    return lambda: report_trade_request(caller=caller, trade_id="t-1")


def tipping_off_refused() -> Act:
    alert, caller = make_alert("C00017", rule_ids=["RISK-003"]), make_caller("risk", "risk-agent")
    seen = {"code": "watch", "visibility": "public", "text": "please call us"}
    alert.status = AlertStatus.CONFIRMED
    alert.save()
    return lambda: write_after_alert(caller=caller, alert_id=alert.pk, flags=[seen])


def drafted(mei: User) -> RiskRule:
    figures = {"mismatch_base": "55"}
    return versions.draft_version(tenant="default", rule_id="RISK-001", params=figures, reason="the minutes", by=mei)


def rule_drafted() -> Act:
    mei = make_person("mei", RISK_MANAGER)
    return lambda: drafted(mei)


def rule_edited() -> Act:
    mei = make_person("mei", RISK_MANAGER)
    row = drafted(mei)
    return lambda: versions.edit_draft(
        tenant="default",
        pk=row.pk,
        revision=row.revision,
        params={"mismatch_base": "56"},
        reason="the minutes, again",
        by=mei,
    )


def rule_shadowed() -> Act:
    mei = make_person("mei", RISK_MANAGER)
    row = drafted(mei)
    return lambda: versions.put_in_shadow(tenant="default", pk=row.pk, revision=row.revision, by=mei)


def rule_activated() -> Act:
    row, bo = drafted(make_person("mei", RISK_MANAGER)), make_person("bo", RISK_MANAGER)
    return lambda: versions.activate(tenant="default", pk=row.pk, revision=row.revision, seen_version=1, by=bo)


def rule_dropped() -> Act:
    mei = make_person("mei", RISK_MANAGER)
    row = drafted(mei)
    return lambda: versions.drop(tenant="default", pk=row.pk, revision=row.revision, by=mei)


def own_rule_refused() -> Act:
    mei = make_person("mei", RISK_MANAGER)
    row = drafted(mei)
    return lambda: versions.activate(tenant="default", pk=row.pk, revision=row.revision, seen_version=1, by=mei)


def conduct_made_up() -> Act:
    deed = Deed(advisor_id="wei", at=now(), code="", trade_id="t-1")
    return lambda: tell_of_demo(tenant="default", deeds=[deed])


def notification_refused() -> Act:
    """The far end refused it for good. That it was claimed before is no decision."""
    channel = NotifyChannel.objects.create(name="desk", kind="webhook", enabled=True)
    NotifyDelivery.objects.create(channel=channel, kind=NotifyDelivery.Kind.TEST, rank=0, next_at=now())
    claim = notify_dispatch.claim()
    assert claim is not None
    return lambda: notify_dispatch.settle(claim, Outcome(Verdict.NEVER, "REFUSED"))


def notification_sent_again() -> Act:
    channel = NotifyChannel.objects.create(name="desk", kind="webhook", enabled=True)
    row = NotifyDelivery.objects.create(channel=channel, state="failed")
    return lambda: send_again(tenant="default", delivery_ids=[row.pk], by="notify_again")


def rows_pruned() -> Act:
    AnalyticsQueryText.objects.create(query_id="q-1", tenant="default", text="SELECT 1")

    def act() -> None:
        came_of_it = prune_table("analytics_query_text")
        assert (came_of_it.removed, came_of_it.error) == (0, "DATABASE_UNAVAILABLE")

    return act


DECISIONS: dict[str, tuple[Callable[..., Act], ...]] = {
    "guard.access.principals:_make": (issued, rotated),
    "guard.access.principals:revoke_key": (revoked,),
    "guard.access.tokens:_record": (tokens_issued, token_revoked, family_revoked, used_twice),
    "guard.access.callers:refuse": (agent_refused,),
    "guard.access.people:record_refusal": (person_refused,),
    "guard.access.unmasking:_record": (unmasked,),
    "guard.access.logins:_record": (logged_in,),
    "guard.access.admin:_record_person": (role_given,),
    "guard.audit.admin:AuditLogAdmin.export": (log_exported,),
    "guard.management.commands.audit_export:Command.handle": (log_exported_to_a_file,),
    "guard.admission.limits:_change.work": (limit_set, limit_retired),
    "guard.admission.fences:_refused": (stale_fence,),
    "guard.admission.budget:adjust_budget.work": (budget_adjusted,),
    "guard.admission.refusals:tell": (not_admitted,),
    "guard.admission.blocks:_record_block": (blocked, block_lifted),
    "guard.admission.pauses:_record": (paused, pause_lifted),
    "memory.erasure.services:_record": (erased,),
    "memory.erasure.holds:_record": (held, hold_released),
    "memory.profiles.services:save_version": (profile_written,),
    "memory.profiles.services:record_write_refusal": (profile_refused, tipping_off_refused),
    "memory.profiles.admin:ProfileAdmin.change_view": (profile_looked_at,),
    "memory.profiles.drafts.services:_audit": (draft_made, draft_rejected),
    "memory.profiles.drafts.admin:AdvisorDraftAdmin._record_look": (draft_looked_at,),
    "memory.profiles.queries.grants:_record": (columns_granted,),
    "memory.profiles.queries.services:_decide": (query_judged,),
    "memory.sessions.dead_letters:_settle": (letter_retried, letter_dropped),
    "memory.sessions.persist:bury": (letter_moved,),
    "memory.sessions.admin:_looked_at": (message_looked_at,),
    "risk.calendar.services:tell_change": (holiday_saved, campaign_deleted),
    "risk.conduct.services:report_trade_request": (trade_reported,),
    "risk.alerts.acting:move": (alert_claimed,),
    "risk.alerts.acting:record_refused": (alert_act_refused,),
    "risk.rules.versions:_tell": (rule_drafted, rule_edited, rule_shadowed, rule_activated, rule_dropped),
    "risk.rules.versions:_acted": (own_rule_refused,),
    "risk.conduct.demo:tell": (conduct_made_up,),
    "config.pruning:_tell": (rows_pruned,),
    "risk.alerts.effects:Effects.write": (alert_opened, alert_escalated, alert_woken),
    "risk.console.customers.views:_record_view": (customer_looked_at,),
    "risk.console.admin:RiskAlertAdmin.change_view": (alert_looked_at,),
    "risk.console.queueing:QueueViews.export_view": (queue_exported,),
    "risk.alerts.attaching:_store_one": (file_attached,),
    "risk.alerts.attaching:opened": (file_opened,),
    "risk.console.casefile.making:make_case_file": (case_file_made,),
    "risk.console.saved:_record": (view_shared,),
    "risk.notify.dispatch:_tell": (notification_refused,),
    "risk.notify.services:send_again": (notification_sent_again,),
}
# Counted before the decision, whatever becomes of it; and the keys of pseudonyms, which name nobody.
_NOT_OF_THE_DECISION = {"login_count", CustomerPseudonym._meta.db_table, "django_session"}


def contents() -> dict[str, str]:
    """All that the tables hold, by table."""
    found: dict[str, str] = {}
    for model in apps.get_models(include_auto_created=True):
        table = model._meta.db_table
        if table not in _NOT_OF_THE_DECISION and model._meta.managed:
            rows = sorted(repr(row) for row in model._default_manager.order_by().values_list())
            found[table] = hashlib.sha256("\n".join(rows).encode()).hexdigest()
    return found


RECORDERS = ("record", "record_all")


def recorder() -> str:
    """Who called `record` or `record_all`, as in the table."""
    frame = sys._getframe()
    while frame.f_code.co_name not in RECORDERS:
        assert frame.f_back is not None
        frame = frame.f_back
    assert frame.f_back is not None
    caller = frame.f_back
    return f"{caller.f_globals['__name__']}:{caller.f_code.co_qualname.replace('.<locals>', '')}"


@pytest.mark.parametrize(
    ("place", "prepare"),
    [(place, one) for place, acts in DECISIONS.items() for one in acts],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_without_the_row_nothing_is_done(
    place: str, prepare: Callable[..., Act], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    act = prepare(tmp_path) if prepare.__code__.co_argcount else prepare()
    before, tried = contents(), []

    def refused(self: AuditLog, *_args: Any, **_kwargs: Any) -> None:
        tried.append(recorder())
        raise IntegrityError("no rows today")

    def all_refused(rows: Sequence[AuditLog]) -> None:
        refused(rows[0])

    monkeypatch.setattr(AuditLog, "save", refused)
    monkeypatch.setattr("guard.audit.services.insert_all", all_refused)
    done: Any = None
    with suppress(DatabaseError, CommandError):
        done = act()
    assert place in tried, "the act has another row, or none"
    if isinstance(done, HttpResponseBase):
        assert done.status_code >= 500
    else:
        assert done is None, "it was done"
    assert contents() == before
    assert not base_redis.state().keys(f"{base_redis.settings.REDIS_KEY_PREFIX}:guard:token:*"), "nor in Redis"


def test_every_place_that_records_is_in_the_table() -> None:
    assert sorted(places()) == sorted(DECISIONS)


def places() -> set[str]:
    """Functions outside of the audit's own services that call `record` or `record_all`."""
    found: set[str] = set()
    for top in ("guard", "memory", "risk", "config"):
        for path in (PROJECT / top).rglob("*.py"):
            module = ".".join(path.relative_to(PROJECT).with_suffix("").parts)
            tree = ast.parse(path.read_text())
            if any(
                isinstance(node, ast.ImportFrom)
                and node.module == "guard.audit.services"
                and any(name.name in RECORDERS for name in node.names)
                for node in ast.walk(tree)
            ):
                _look(tree, module, "", found)
    return found


def _look(node: ast.AST, module: str, where: str, found: set[str]) -> None:
    for child in ast.iter_child_nodes(node):
        inner = where
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{where}.{child.name}".lstrip(".")
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id in RECORDERS:
            found.add(f"{module}:{inner}")
        _look(child, module, inner, found)
