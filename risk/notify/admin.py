"""Channels, rules and what became of notifications, in the console.

Operators (platform_admin) run channels, which hold secrets and lead out of the house; managers say which alerts go
there. Both see what was sent and what was not; what it said of a case is seen by neither here.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.debug import sensitive_post_parameters

from config.base.errors import DomainError
from guard.access.staff_admin import ReadOnlyAdmin, person_of, request_tenant
from risk.calendar.tables import EditedTable, TableForm, refusals_shown
from risk.notify import services
from risk.notify.models import ChannelKind, DeliveryState, NotifyChannel, NotifyDelivery, NotifyRule
from risk.notify.outcomes import REASONS
from risk.notify.services import Entered

_HIDDEN = {"autocomplete": "new-password", "spellcheck": "false", "class": "vTextField"}


def _secret(label: Any, help_text: Any) -> forms.CharField:
    """Typed, and never shown again."""
    widget = forms.PasswordInput(render_value=False, attrs=_HIDDEN)
    return forms.CharField(
        label=label, help_text=help_text, widget=widget, required=False, strip=False, max_length=2000
    )


class ChannelForm(TableForm):
    address = _secret(
        gettext_lazy("Address"),
        gettext_lazy("Of a webhook, or as the robot shows it. It is not shown again; empty leaves it as it is."),
    )
    secret = _secret(
        gettext_lazy("Signing secret"),
        gettext_lazy("Of webhooks, DingTalk and Feishu. It is not shown again; empty leaves it as it is."),
    )
    forget_secret = forms.BooleanField(label=gettext_lazy("Forget the signing secret"), required=False)
    mail_to = forms.CharField(
        label=gettext_lazy("Recipients"),
        help_text=gettext_lazy("E-mail addresses, one a line. They get one message together."),
        widget=forms.Textarea(attrs={"rows": 3}),
        required=False,
    )
    mail_sender = forms.EmailField(label=gettext_lazy("Sender"), required=False, max_length=254)
    mail_host = forms.CharField(label=gettext_lazy("Mail server"), required=False, max_length=253)
    mail_port = forms.IntegerField(label=gettext_lazy("Port"), required=False, min_value=1, max_value=65535)
    mail_mode = forms.ChoiceField(
        label=gettext_lazy("Secured by"),
        choices=[("starttls", "STARTTLS"), ("ssl", "TLS"), ("insecure", gettext_lazy("nothing"))],
        required=False,
    )
    mail_user = forms.CharField(label=gettext_lazy("Mail account"), required=False, max_length=254)
    password = _secret(gettext_lazy("Mail password"), gettext_lazy("It is not shown again; empty leaves it as it is."))

    class Meta:
        model = NotifyChannel
        fields = ("name", "kind", "enabled", "language", "per_minute", "quiet_from", "quiet_to")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = self.instance.options or {}
        for name in ("host", "port", "mode", "user", "sender"):
            self.initial.setdefault(f"mail_{name}", options.get(name, "starttls" if name == "mode" else None))
        self.initial.setdefault("mail_to", "\n".join(options.get("to", [])))

    def entered(self) -> Entered:
        said = self.cleaned_data
        forget = frozenset({"secret"}) if said.get("forget_secret") else frozenset()
        return Entered(said.get("address", ""), said.get("secret", ""), said.get("password", ""), forget)

    def _post_clean(self) -> None:
        super()._post_clean()
        if self.errors:
            return
        said = self.cleaned_data
        if self.instance.kind == ChannelKind.EMAIL:
            self.instance.options = {
                **{name: said.get(f"mail_{name}") or "" for name in ("host", "mode", "user", "sender")},
                "port": said.get("mail_port") or (465 if said.get("mail_mode") == "ssl" else 587),
                "to": said.get("mail_to", "").replace(",", " ").replace(";", " ").split(),
            }
        try:
            services.check_channel(channel=self.instance, entered=self.entered())
        except DomainError as refused:
            self.add_error(None, refused.detail)


@admin.register(NotifyChannel)
class ChannelAdmin(EditedTable):
    list_display = ("name", "kind", "shown", "enabled", "language", "per_minute", "failures", "not_before")
    list_filter = ("kind", "enabled")
    form = ChannelForm
    permission = services.CHANGE_CHANNEL
    # Hours of the business day: Django's own would speak of the server's.
    formfield_overrides: ClassVar = {
        models.TimeField: {"form_class": forms.TimeField, "widget": forms.TimeInput({"type": "time"}, "%H:%M")}
    }
    change_form_template = "risk/notify/channel.html"
    SECRETS: ClassVar = ("address", "secret", "forget_secret")
    MAIL: ClassVar = (
        "mail_to", "mail_sender", "mail_host", "mail_port", "mail_mode", "mail_user", "password",
    )  # fmt: skip

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("kind", "shown", "failures", "not_before") if obj is not None else ()

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        first = ["name", "kind", *(("shown",) if obj is not None else ()), "enabled", "language"]
        held = ["per_minute", ("quiet_from", "quiet_to"), *(("failures", "not_before") if obj is not None else ())]
        found: list[tuple[Any, dict[str, Any]]] = [(None, {"fields": first})]
        if self.has_change_permission(request, obj):
            if obj is None or obj.kind != ChannelKind.EMAIL:
                found.append((_("Where to"), {"fields": self.SECRETS}))
            if obj is None or obj.kind == ChannelKind.EMAIL:
                found.append((_("Mail"), {"fields": self.MAIL}))
        note = _(
            "More than so many within a minute become one summary; 0: never. In quiet hours only critical ones go."
        )
        return [*found, (_("How much"), {"fields": held, "description": note})]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        kwargs["fields"] = [name for name in ChannelForm.Meta.fields if obj is None or name != "kind"]
        return super().get_form(request, obj, change=change, **kwargs)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # taken out of use: what was sent there names it

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        obj.tenant = request_tenant(request)
        with refusals_shown():
            services.save_channel(channel=obj, entered=form.entered(), by=person_of(request))

    @method_decorator(sensitive_post_parameters("address", "secret", "password"))
    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> Any:
        if request.method == "POST" and "_test" in request.POST and object_id:
            return self._test(request, object_id)
        channel = self.get_queryset(request).filter(pk=object_id).first() if object_id else None
        may = channel is not None and channel.enabled and self.has_change_permission(request, channel)
        response = super().changeform_view(request, object_id, form_url, {**(extra_context or {}), "may_test": may})
        response["Cache-Control"] = "no-store"
        return response

    def _test(self, request: HttpRequest, object_id: str) -> HttpResponse:
        channel = self.get_queryset(request).filter(pk=object_id).first()
        if channel is None or not self.has_change_permission(request, channel):
            raise PermissionDenied
        try:
            with refusals_shown():
                delivery = services.test_channel(channel=channel, by=person_of(request))
        except DomainError as refused:
            messages.error(request, refused.detail)
            return HttpResponseRedirect(request.path)
        messages.success(request, _("A test is on its way. Its page says what becomes of it."))
        return HttpResponseRedirect(reverse("admin:risk_notifydelivery_change", args=[delivery.pk]))


class RuleForm(TableForm):
    class Meta:
        model = NotifyRule
        fields = ("channel", "enabled", "alert_type", "least_band", "least_level", "role")

    def clean(self) -> dict[str, Any] | None:
        said = super().clean()
        channel = self.cleaned_data.get("channel")
        if channel is not None and channel.tenant != self.tenant:
            self.add_error("channel", _("There is no such channel."))
        return said


@admin.register(NotifyRule)
class RuleAdmin(EditedTable):
    list_display = ("__str__", "channel", "alert_type", "least_band", "least_level", "role", "enabled")
    list_filter = ("enabled", "alert_type", "least_band")
    list_select_related = ("channel",)
    form = RuleForm
    permission = services.CHANGE_RULE

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "channel":
            kwargs["queryset"] = NotifyChannel.objects.filter(tenant=request_tenant(request))
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_row(self, row: Any, by: Any) -> None:
        services.save_rule(rule=row, by=by)

    def delete_row(self, row: Any, by: Any) -> None:
        services.delete_rule(rule=row, by=by)


class ChannelFilter(admin.SimpleListFilter):
    """Channels of the viewer's tenant."""

    title = gettext_lazy("notification channel")
    parameter_name = "to"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return list(NotifyChannel.objects.filter(tenant=request_tenant(request)).values_list("pk", "name"))

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset.filter(channel=self.value()) if self.value() else queryset


@admin.register(NotifyDelivery)
class DeliveryAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "channel", "kind", "state", "attempts", "why", "status", "next_at", "done_at")
    list_filter = ("state", "kind", ChannelFilter)
    list_select_related = ("channel",)
    exact_search = ("delivery_id", "alert_id")
    search_help_text = gettext_lazy("Exactly a notification or an alert")
    actions = ("send_again",)
    change_form_template = "risk/notify/delivery.html"
    readonly_fields = ("why", "summary")
    fields = (
        "delivery_id", "channel", "kind", "alert_id", "seq", "state", "why", "status", "attempts", "created_at",
        "tried_at", "next_at", "done_at", "summary", "trace_id",
    )  # fmt: skip

    def has_resend_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(services.RESEND)  # type: ignore[union-attr]

    @admin.display(description=gettext_lazy("why"))
    def why(self, row: NotifyDelivery) -> str:
        return str(REASONS.get(row.code, row.code)) if row.code else ""

    @admin.display(description=gettext_lazy("summary"))
    def summary(self, row: NotifyDelivery) -> str:
        if row.kind == NotifyDelivery.Kind.DIGEST:
            count = int(row.body.get("events", 0))
            return ngettext("of %(count)d alert", "of %(count)d alerts", count) % {"count": count}
        return row.digest_id or ""  # type: ignore[attr-defined]

    @admin.action(description=gettext_lazy("Send the selected ones again"), permissions=["resend"])
    def send_again(self, request: HttpRequest, rows: Any) -> None:
        self._send(request, list(rows.values_list("pk", flat=True)[: self.list_per_page]))

    def _send(self, request: HttpRequest, pks: list[str]) -> None:
        with refusals_shown():
            count = services.send_again(tenant=request_tenant(request), delivery_ids=pks, by=person_of(request))
        if count:
            said = ngettext("%(count)d notification waits again.", "%(count)d notifications wait again.", count)
            messages.success(request, said % {"count": count})
        if count < len(pks):
            messages.warning(
                request,
                _("Only what was given up or is not known is sent again, and only where the channel is in use."),
            )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Shows what became of it; a POST with `again` has it sent once more."""
        if request.method == "POST":
            if not self.has_resend_permission(request) or "again" not in request.POST:
                raise PermissionDenied
            self._send(request, [object_id])
            return HttpResponseRedirect(request.path)
        over = (DeliveryState.FAILED, DeliveryState.UNKNOWN)
        row = self.get_queryset(request).filter(pk=object_id).first()
        may = row is not None and row.state in over and self.has_resend_permission(request)
        perhaps = row is not None and row.state == DeliveryState.UNKNOWN
        extra = {**(extra_context or {}), "may_resend": may, "perhaps": perhaps}
        return super().change_view(request, object_id, form_url, extra)
