"""Agent keys, people and their tenants. Keys are issued and revoked by the services, and shown once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from config.base.clock import now
from config.base.errors import DomainError
from config.base.ids import check_id
from config.base.keys import DEFAULT_TENANT
from guard.access.logins import LoginForm
from guard.access.models import Agent, AgentPrincipal, StaffMember
from guard.access.services import issue_key, revoke_key, rotate_key
from guard.access.staff_admin import ReadOnlyAdmin, person_of, request_tenant
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record


class RotateForm(forms.Form):
    """How long the old key stays good beside the new one."""

    overlap = forms.TypedChoiceField(
        label=gettext_lazy("The old key stays valid for"),
        coerce=int,
        choices=[
            (0, gettext_lazy("no longer: it ends now")),
            (3600, gettext_lazy("1 hour")),
            (86_400, gettext_lazy("1 day")),
            (7 * 86_400, gettext_lazy("7 days")),
        ],
        initial=3600,
    )


MAX_ROTATED = 20  # keys that one action rotates: each new one has to be handed over


class IssueKeyForm(forms.Form):
    agent = forms.ChoiceField(label=gettext_lazy("AI agent"), choices=Agent.choices)
    actor_id = forms.CharField(
        label=gettext_lazy("Bound actor"),
        max_length=64,
        required=False,
        help_text=gettext_lazy("Leave empty for a service that names its actor with each request."),
    )
    expires_days = forms.IntegerField(
        label=gettext_lazy("Valid for (days)"),
        min_value=1,
        max_value=3650,
        required=False,
        help_text=gettext_lazy("Leave empty for a key that stays valid until it is revoked."),
    )
    note = forms.CharField(label=gettext_lazy("Note"), max_length=200, required=False)

    def clean_actor_id(self) -> str:
        actor_id: str = self.cleaned_data["actor_id"]
        if actor_id:
            try:
                check_id("actor", actor_id)
            except DomainError:
                raise ValidationError(gettext_lazy("Use 1 to 64 of A-Z a-z 0-9 _ . -")) from None
        return actor_id


@admin.register(AgentPrincipal)
class AgentPrincipalAdmin(ReadOnlyAdmin):
    list_display = ("principal_id", "agent", "actor_id", "note", "state", "created_at", "expires_at", "last_used_at")
    list_filter = ("agent",)
    exact_search = ("principal_id", "actor_id")
    exclude = ("key_digest",)
    actions = ("revoke", "rotate")
    change_form_template = "guard/principal.html"

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("guard.add_agentprincipal")  # type: ignore[union-attr]

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("guard.change_agentprincipal")  # type: ignore[union-attr]

    def has_rotate_permission(self, request: HttpRequest) -> bool:
        return self.has_revoke_permission(request) and self.has_add_permission(request)

    @admin.display(description=gettext_lazy("state"))
    def state(self, principal: AgentPrincipal) -> str:
        if principal.revoked_at:
            return _("revoked")
        if principal.expires_at and principal.expires_at <= now():
            return _("expired")
        return _("rotated") if principal.replaced_by else _("valid")

    @admin.action(description=gettext_lazy("Revoke the selected keys"), permissions=["revoke"])
    def revoke(self, request: HttpRequest, principals: QuerySet[AgentPrincipal]) -> None:
        count = 0
        for principal in principals.filter(revoked_at=None):
            revoke_key(principal_id=principal.principal_id, revoked_by=person_of(request))
            count += 1
        messages.success(request, _("%(count)d keys revoked. They stop working within 5 seconds.") % {"count": count})

    @admin.action(description=gettext_lazy("Rotate the selected keys"), permissions=["rotate"])
    def rotate(self, request: HttpRequest, principals: QuerySet[AgentPrincipal]) -> HttpResponse | None:
        """Asks for the overlap, then shows the new keys, once. A key that cannot be rotated holds up no other."""
        chosen = list(principals[: MAX_ROTATED + 1])
        if len(chosen) > MAX_ROTATED:
            messages.error(request, _("Rotate at most %(count)d keys at once.") % {"count": MAX_ROTATED})
            return None
        form = RotateForm(request.POST if "overlap" in request.POST else None)
        rotated = []
        if form.is_valid():
            overlap = timedelta(seconds=form.cleaned_data["overlap"])
            for principal in chosen:
                try:
                    rotated.append(
                        rotate_key(principal_id=principal.principal_id, overlap=overlap, rotated_by=person_of(request))
                    )
                except DomainError as refused:
                    messages.error(request, f"{principal.principal_id}: {refused.detail}")
            if not rotated:
                return None
        context = {
            **self.admin_site.each_context(request),
            "title": _("The new agent keys") if rotated else _("Rotate agent keys"),
            "opts": self.opts,
            "form": form,
            "chosen": chosen,
            "rotated": rotated,
        }
        response = TemplateResponse(request, "guard/rotate_key.html", context)
        response["Cache-Control"] = "no-store"
        return response

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Issues a key. The answer to the POST shows it, and nothing can show it again."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = IssueKeyForm(request.POST or None)
        issued = None
        if request.method == "POST" and form.is_valid():
            days = form.cleaned_data["expires_days"]
            issued = issue_key(
                agent=form.cleaned_data["agent"],
                tenant=request_tenant(request),
                actor_id=form.cleaned_data["actor_id"],
                expires_in=timedelta(days=days) if days else None,
                note=form.cleaned_data["note"],
                issued_by=person_of(request),
            )
        context = {
            **self.admin_site.each_context(request),
            "title": _("The new agent key") if issued else _("Issue an agent key"),
            "opts": self.opts,
            "form": form,
            "issued": issued,
        }
        response = TemplateResponse(request, "guard/issue_key.html", context)
        response["Cache-Control"] = "no-store"
        return response

    def _list(self) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:guard_agentprincipal_changelist"))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Shows the key's row; a POST with `revoke` ends it, one with `rotate` asks about a new one."""
        if request.method == "POST":
            if not self.has_revoke_permission(request):
                raise PermissionDenied
            found = self.get_queryset(request).filter(pk=object_id).first()
            if found is not None and "revoke" in request.POST:
                revoke_key(principal_id=found.principal_id, revoked_by=person_of(request))
                messages.success(request, _("The key is revoked. It stops working within 5 seconds."))
            if found is not None and "rotate" in request.POST:
                if not self.has_rotate_permission(request):
                    raise PermissionDenied
                return self.rotate(request, self.get_queryset(request).filter(pk=found.pk)) or self._list()
            return self._list()
        extra = {
            **(extra_context or {}),
            "may_revoke": self.has_revoke_permission(request),
            "may_rotate": self.has_rotate_permission(request),
        }
        return super().change_view(request, object_id, form_url, extra)


def people_of(request: HttpRequest) -> QuerySet[User]:
    """Those whom this person may see: a platform's superuser all, anyone else those of their own tenant."""
    people = User.objects.all()
    if request.user.is_superuser:  # type: ignore[union-attr]
        return people
    tenant = request_tenant(request)
    placed = StaffMember.objects.filter(user_id=OuterRef("pk"))
    if tenant == DEFAULT_TENANT:
        return people.filter(~Exists(placed.exclude(tenant=tenant)))
    return people.filter(Exists(placed.filter(tenant=tenant)))


@admin.register(StaffMember)
class StaffMemberAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Who works for which tenant; without a row, `default`. And as whom: nobody says so of themselves, for that would
    let them review what they wrote. Each change of that is an audit row."""

    list_display = ("user", "tenant", "actor_id")
    list_select_related = ("user",)
    raw_id_fields = ("user",)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        # A platform's superuser runs all tenants; anyone else sees and changes their own.
        return rows if request.user.is_superuser else rows.filter(tenant=request_tenant(request))  # type: ignore[union-attr]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        fields: tuple[str, ...] = () if request.user.is_superuser else ("tenant",)  # type: ignore[union-attr]
        own = obj is not None and obj.pk == request.user.pk
        return (*fields, "actor_id") if own else fields

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        if "actor_id" in form.base_fields:
            form.base_fields["actor_id"].validators.append(_check_actor)
            form.base_fields["actor_id"].help_text = _("The advisor's id, where this person writes as one.")
        return form

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        kwargs["queryset"] = people_of(request)  # nobody is taken over from another tenant
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: StaffMember, form: Any, change: bool) -> None:
        if not request.user.is_superuser:  # type: ignore[union-attr]
            obj.tenant = request_tenant(request)
        if not change and obj.user_id == request.user.pk:  # type: ignore[attr-defined]
            obj.actor_id = ""
        before = StaffMember.objects.filter(pk=obj.pk).values_list("actor_id", flat=True).first() or ""
        with transaction.atomic():
            super().save_model(request, obj, form, change)
            if obj.actor_id != before:
                decision = Decision.GRANTED if obj.actor_id else Decision.REVOKED
                _record_person(request, EventType.PRINCIPAL, decision, obj.user, "ACTS_AS")


def _check_actor(value: str) -> None:
    try:
        check_id("actor", value)
    except DomainError:
        raise ValidationError(_("Use 1 to 64 of A-Z a-z 0-9 _ . -")) from None


admin.site.login_form = LoginForm
admin.site.unregister(User)
admin.site.unregister(Group)


_STANDINGS = ("is_active", "is_staff", "is_superuser")


def _record_person(request: HttpRequest, event: EventType, decision: Decision, person: User, code: str) -> None:
    record(
        tenant=request_tenant(request),
        event_type=event,
        decision=decision,
        actor_type=ActorType.STAFF,
        actor_id=request.user.get_username()[:64],
        object_type="user",
        object_id=person.get_username()[:64],
        code=code[:32],
        input_summary={"role": code} if event == EventType.ROLE else {},
    )


@admin.register(User)
class PeopleAdmin(UserAdmin):  # type: ignore[type-arg]
    """The tenant's people and their roles. Only a superuser touches superusers, and nobody their own roles; people
    leave by losing `active`, not by deletion, since what they did keeps pointing at them. Each role given or taken is
    an audit row."""

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_display = ("username", "last_name", "first_name", "is_active", "is_staff", "is_superuser", "last_login")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        allowed = super().has_change_permission(request, obj)
        return allowed and (obj is None or not obj.is_superuser or request.user.is_superuser)  # type: ignore[union-attr]

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).filter(pk__in=people_of(request).values("pk"))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        fields: tuple[str, ...] = ("last_login", "date_joined")
        if request.user.is_superuser:  # type: ignore[union-attr]
            return fields
        if obj is not None and obj.pk == request.user.pk:
            fields = (*fields, "groups")
        return (*fields, "is_superuser", "user_permissions")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """With a row for each of `active`, `staff` and `superuser` that was given or taken."""
        before = User.objects.filter(pk=obj.pk).values(*_STANDINGS).first() if change else {}
        tenant = request_tenant(request)
        with transaction.atomic():
            super().save_model(request, obj, form, change)
            if not change and tenant != DEFAULT_TENANT:
                StaffMember.objects.create(user=obj, tenant=tenant)
            for standing in _STANDINGS:
                had, has = bool((before or {}).get(standing)), bool(getattr(obj, standing))
                if had != has:
                    decision = Decision.GRANTED if has else Decision.REVOKED
                    _record_person(request, EventType.ROLE, decision, obj, standing.removeprefix("is_"))

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        """Who sets another's password could log in as them: that is a row."""
        with transaction.atomic():
            response = super().user_change_password(request, id, form_url)
            person = self.get_object(request, id)
            if request.method == "POST" and response.status_code == 302 and person is not None:
                _record_person(request, EventType.PRINCIPAL, Decision.ROTATED, person, "PASSWORD")
        return response

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        person: User = form.instance
        with transaction.atomic():
            before = set(person.groups.values_list("name", flat=True))
            super().save_related(request, form, formsets, change)
            after = set(person.groups.values_list("name", flat=True))
            for decision, roles in ((Decision.GRANTED, after - before), (Decision.REVOKED, before - after)):
                for role in sorted(roles):
                    _record_person(request, EventType.ROLE, decision, person, role)


@admin.register(Group)
class RoleAdmin(GroupAdmin):  # type: ignore[type-arg]
    """Roles. The four that the system knows are made after every migrate; nobody deletes one here."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
