"""Limits, blocks, pauses and the ledger in the console. Every change goes through the room's services."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from config.base.clock import now
from config.base.errors import DomainError
from guard.access.masking import mask
from guard.access.models import Agent
from guard.access.people import RefusalRecorded
from guard.access.roles import may
from guard.access.staff_admin import ReadOnlyAdmin, person_of, presence_filter, request_tenant
from guard.admission import blocks, budget, limits
from guard.admission.models import ActorBlock, AdmissionLimit, AgentPause, BudgetLedger, LimitKind


def _any(label: Any) -> list[tuple[str, Any]]:
    return [("", label), *Agent.choices]


class _Masked(ReadOnlyAdmin):
    """An actor may be a customer: shown with a mask, and found by the whole id."""

    @admin.display(description=gettext_lazy("actor"))
    def actor(self, row: Any) -> str:
        return mask(row.actor_id) if row.actor_id else ""

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        hidden = {"id", "current", "open"}
        names = [field.name for field in self.opts.fields if field.name not in hidden]
        return ["actor" if name == "actor_id" else name for name in names]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.get_fields(request, obj)


@contextmanager
def _refusals_shown() -> Iterator[None]:
    """A service's refusal of a person is the page's: 403, and the row that the service has written is the only one."""
    try:
        yield
    except DomainError as refused:
        if refused.code == "FORBIDDEN":
            raise RefusalRecorded(refused.detail) from refused
        raise


class _ByRole:
    """Offered to whom the service will not refuse: by role or by grant, superusers too."""

    add_permission: str

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request.user, self.add_permission)


class _ByService(_Masked):
    """A table whose rows are made by a form of its own, and ended by an action."""

    form_class: type[forms.Form]
    add_permission: str
    title: Any

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(self.add_permission)  # type: ignore[union-attr]

    def response_action(self, request: HttpRequest, queryset: Any) -> Any:
        with _refusals_shown():
            return super().response_action(request, queryset)

    def make(self, request: HttpRequest, data: dict[str, Any]) -> str:
        """Calls the service and says what was done. Errors: DomainError."""
        raise NotImplementedError

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = self.form_class(request.POST or None, initial=request.GET.dict())
        list_url = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")
        if request.method == "POST" and form.is_valid():
            try:
                with _refusals_shown():
                    messages.success(request, self.make(request, form.cleaned_data))
                return HttpResponseRedirect(list_url)
            except DomainError as refused:
                if refused.status == 503:
                    raise  # nothing that another value in the form would mend
                form.add_error(None, refused.detail)
        context = {
            **self.admin_site.each_context(request),
            "title": self.title,
            "opts": self.opts,
            "form": form,
            "list_url": list_url,
        }
        return TemplateResponse(request, "guard/admission_form.html", context)


class _Lifted(_ByRole, _ByService):
    """What somebody put into force until it is lifted. Whoever may do the one may do the other."""

    actions = ("lift",)

    def lift_one(self, row: Any, by: User) -> bool:
        """Calls the service. False where it was over already."""
        raise NotImplementedError

    def has_lift_permission(self, request: HttpRequest) -> bool:
        return self.has_add_permission(request)

    @admin.action(description=gettext_lazy("Lift the selected ones"), permissions=["lift"])
    def lift(self, request: HttpRequest, rows: QuerySet[Any]) -> None:
        count = sum(self.lift_one(row, person_of(request)) for row in rows.filter(open=1))
        messages.success(request, _("%(count)d lifted.") % {"count": count})


class LimitForm(forms.Form):
    kind = forms.ChoiceField(label=gettext_lazy("Limit"), choices=LimitKind.choices)
    value = forms.DecimalField(
        label=gettext_lazy("Value"),
        min_value=Decimal(0),
        max_digits=16,
        decimal_places=6,
        required=False,
        help_text=gettext_lazy("Calls, or money for the budget. Leave empty for no limit."),
    )
    agent = forms.ChoiceField(
        label=gettext_lazy("AI agent"), choices=lambda: _any(gettext_lazy("every agent")), required=False
    )
    actor_id = forms.CharField(
        label=gettext_lazy("Actor"), max_length=64, required=False, help_text=gettext_lazy("Empty: every actor.")
    )
    action = forms.CharField(
        label=gettext_lazy("Action"),
        max_length=64,
        required=False,
        help_text=gettext_lazy("Of hourly limits. Empty: every action."),
    )
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=200)


@admin.register(AdmissionLimit)
class AdmissionLimitAdmin(_ByService):
    """What is in force, and every version before it. Another value is a new version; taken away, the next less
    specific limit counts again."""

    list_display = ("kind", "shown", "agent", "actor", "action", "version", "in_force", "changed_by", "changed_at")
    list_filter = (
        "kind",
        (
            "current",
            presence_filter(gettext_lazy("state"), there=gettext_lazy("in force"), away=gettext_lazy("replaced")),
        ),
    )
    exact_search = ("actor_id",)
    search_help_text = gettext_lazy("Exactly an actor")
    actions = ("retire",)
    form_class = LimitForm
    add_permission = limits.CHANGE
    title = gettext_lazy("Set a limit")

    @admin.display(description=gettext_lazy("value"))
    def shown(self, limit: AdmissionLimit) -> str:
        if limit.value is None:
            return _("no limit")
        return f"{limit.value:f}" if limit.kind == LimitKind.BUDGET else f"{limit.value:.0f}"

    @admin.display(description=gettext_lazy("in force"), boolean=True)
    def in_force(self, limit: AdmissionLimit) -> bool:
        return limit.current == 1 and not limit.retired

    def make(self, request: HttpRequest, data: dict[str, Any]) -> str:
        limits.set_limit(tenant=request_tenant(request), by=person_of(request), **data)
        return _("The limit is in force within 5 seconds.")

    def has_retire_permission(self, request: HttpRequest) -> bool:
        return self.has_add_permission(request)

    @admin.action(description=gettext_lazy("Take the selected limits away"), permissions=["retire"])
    def retire(self, request: HttpRequest, rows: QuerySet[AdmissionLimit]) -> None:
        count = 0
        for pk in rows.filter(current=1, retired=False).values_list("pk", flat=True):
            limits.retire_limit(limit_id=pk, tenant=request_tenant(request), by=person_of(request))
            count += 1
        messages.success(request, _("%(count)d limits taken away.") % {"count": count})


class BlockForm(forms.Form):
    actor_id = forms.CharField(label=gettext_lazy("Actor"), max_length=64)
    minutes = forms.IntegerField(
        label=gettext_lazy("Minutes"),
        min_value=1,
        max_value=527_040,
        required=False,
        help_text=gettext_lazy("Empty: 15 minutes, twice as long each further time within 30 days."),
    )
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=200)


@admin.register(ActorBlock)
class ActorBlockAdmin(_Lifted):
    list_display = ("actor", "code", "repeat", "started_at", "expires_at", "state", "blocked_by", "lifted_by")
    list_filter = (
        ("open", presence_filter(gettext_lazy("state"), there=gettext_lazy("in force"), away=gettext_lazy("over"))),
    )
    exact_search = ("actor_id",)
    search_help_text = gettext_lazy("Exactly an actor")
    form_class = BlockForm
    add_permission = blocks.BLOCK
    title = gettext_lazy("Block an actor")

    @admin.display(description=gettext_lazy("state"))
    def state(self, block: ActorBlock) -> str:
        if block.lifted_by:
            return _("lifted")
        return _("in force") if block.open and block.expires_at > now() else _("over")

    def make(self, request: HttpRequest, data: dict[str, Any]) -> str:
        minutes = data["minutes"]
        blocks.block_actor(
            tenant=request_tenant(request),
            actor_id=data["actor_id"],
            code="OFFICER",
            reason=data["reason"],
            seconds=minutes * 60 if minutes else None,
            by=person_of(request),
        )
        return _("The actor is blocked.")

    def lift_one(self, row: ActorBlock, by: User) -> bool:
        return blocks.lift_block(tenant=row.tenant, actor_id=row.actor_id, by=by)


class PauseForm(forms.Form):
    agent = forms.ChoiceField(label=gettext_lazy("AI agent"), choices=Agent.choices)
    minutes = forms.IntegerField(
        label=gettext_lazy("Minutes"),
        min_value=1,
        max_value=44_640,
        required=False,
        help_text=gettext_lazy("Empty: until somebody lifts it."),
    )
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=200)


@admin.register(AgentPause)
class AgentPauseAdmin(_Lifted):
    list_display = ("agent", "reason", "paused_by", "started_at", "expires_at", "ended_at", "lifted_by")
    list_filter = (
        ("open", presence_filter(gettext_lazy("state"), there=gettext_lazy("in force"), away=gettext_lazy("over"))),
        "agent",
    )
    form_class = PauseForm
    add_permission = blocks.PAUSE
    title = gettext_lazy("Pause an AI agent")

    def make(self, request: HttpRequest, data: dict[str, Any]) -> str:
        minutes = data.pop("minutes")
        seconds = minutes * 60 if minutes else None
        blocks.pause_agent(tenant=request_tenant(request), by=person_of(request), seconds=seconds, **data)
        return _("The AI agent is paused: it starts nothing any more.")

    def lift_one(self, row: AgentPause, by: User) -> bool:
        return blocks.lift_pause(tenant=row.tenant, agent=row.agent, by=by)


class AdjustForm(forms.Form):
    amount = forms.DecimalField(
        label=gettext_lazy("Amount"),
        max_digits=16,
        decimal_places=6,
        help_text=gettext_lazy("Added to what is spent this month. Below zero: money comes back."),
    )
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=200)
    # The same form sent twice is one correction.
    reference = forms.CharField(max_length=32, widget=forms.HiddenInput, initial=lambda: uuid.uuid4().hex)

    def clean_amount(self) -> Decimal:
        amount: Decimal = self.cleaned_data["amount"]
        if not amount:
            raise forms.ValidationError(_("Enter an amount other than 0."))
        return amount


@admin.register(BudgetLedger)
class BudgetLedgerAdmin(_ByRole, _ByService):
    """To look at: a correction is an entry of its own, which managers make with a reason."""

    form_class = AdjustForm
    add_permission = budget.ADJUST
    title = gettext_lazy("Adjust this month's budget")
    list_display = ("recorded_at", "month", "number", "kind", "amount", "actor", "agent", "action", "reason")
    list_filter = ("kind", "agent")
    exact_search = ("month", "actor_id", "admission_id")
    search_help_text = gettext_lazy("Exactly a month (YYYY-MM), an actor or an admission")

    @admin.display(description=gettext_lazy("actor"))
    def actor(self, row: BudgetLedger) -> str:
        """Who makes a correction is a person of the house."""
        return row.actor_id if row.kind == BudgetLedger.Kind.ADJUSTMENT else super().actor(row)

    def make(self, request: HttpRequest, data: dict[str, Any]) -> str:
        row = budget.adjust_budget(tenant=request_tenant(request), by=person_of(request), **data)
        return _("The budget of %(month)s is adjusted.") % {"month": row.month}
