"""The officers' acts between the page and `risk.alerts.services`: forms, calls, and what a refusal says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, time, timedelta
from functools import wraps
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.forms import Form
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from config.base.clock import business_zone, now
from config.base.errors import DomainError
from config.base.uploads import too_much
from guard.access.people import RefusalRecorded, record_refusal
from guard.access.roles import may
from guard.access.staff_admin import request_tenant
from guard.admission.blocks import BLOCK, PAUSE
from risk.alerts import services
from risk.alerts.acting import REVIEW
from risk.alerts.attaching import MOST_ON_ALERT
from risk.alerts.models import DISPOSED, AlertStatus, AlertType, DispositionCode, RiskAlert
from risk.console.forms import (
    NO_OFFICER,
    NOT_DUE,
    AnswerForm,
    ApprovalForm,
    AskForm,
    AssignmentForm,
    DispositionForm,
    GoOnForm,
    NoteForm,
    ReopenForm,
    ReturnForm,
    SnoozeForm,
    StopForm,
    VersionForm,
    WithdrawForm,
)
from risk.console.sight import DISPOSE, VIEW, Sight

View = Callable[..., HttpResponseBase]
ACTS = (
    "claim", "assign", "release", "snooze", "wake", "dispose", "escalate", "approve", "return", "reopen", "note",
    "ask", "answer", "withdraw", "stop", "go_on",
)  # fmt: skip
DONE = {
    "claim": gettext_lazy("The alert is yours."),
    "release": gettext_lazy("The alert is back in the queue."),
    "dispose": gettext_lazy("The disposition is recorded."),
    "reopen": gettext_lazy("The alert is open again, and yours."),
    "note": gettext_lazy("The note is on the timeline."),
    "ask": gettext_lazy("The question is on record."),
    "answer": gettext_lazy("The answer is on record."),
    "withdraw": gettext_lazy("The question is withdrawn."),
    "stop": gettext_lazy("It is stopped; how long, the page says."),
    "go_on": gettext_lazy("It may go on."),
    "assign": gettext_lazy("The alert is assigned."),
    "snooze": gettext_lazy("The alert is put aside."),
    "wake": gettext_lazy("The alert is taken up again."),
    "escalate": gettext_lazy("The disposition waits for a second officer."),
    "approve": gettext_lazy("The disposition is approved."),
    "return": gettext_lazy("The alert is returned."),
}


def allowed_acts(alert: RiskAlert, user: Any, sight: Sight) -> frozenset[str]:
    """The controls that the page offers; the services decide again. None for who only looks, none on faults."""
    if not sight.acts or alert.alert_type == AlertType.DATA_QUALITY:
        return frozenset()
    acts = {"note", "ask", "answer", "withdraw"}
    if may(user, BLOCK) or may(user, PAUSE):
        acts |= {"stop", "go_on"}
    aside = "wake" if alert.snoozed_until else "snooze"
    if alert.status == AlertStatus.PENDING:
        acts |= {"claim", "assign", "dispose", "escalate", aside}
    elif alert.status == AlertStatus.IN_REVIEW:
        acts |= {"release", "assign"}
        if alert.assignee_id == user.pk:  # type: ignore[attr-defined]
            acts |= {"dispose", "escalate", aside}
    elif alert.status == AlertStatus.ESCALATED:
        own, reviews = alert.proposed_by_id == user.pk, may(user, REVIEW)  # type: ignore[attr-defined]
        if own or reviews:
            acts.add("return")
        if reviews and not own:
            acts.add("approve")
    elif alert.status in DISPOSED:
        acts.add("reopen")
        if alert.status == AlertStatus.CONFIRMED:
            acts.add("dispose")
    return frozenset(acts)


def form_of(name: str, alert: RiskAlert, request: HttpRequest) -> Form:
    data = request.POST
    if name in ("dispose", "escalate"):
        return DispositionForm(data, alert=alert)
    if name == "note":
        form = NoteForm(data, request.FILES)
        if too_much(request):
            form.add_error("attached", files_too_large())
        return form
    if name == "assign":
        return AssignmentForm(data, tenant=alert.tenant)
    return _FORMS.get(name, VersionForm)(data)


_FORMS: dict[str, type[Form]] = {
    "note": NoteForm,
    "reopen": ReopenForm,
    "return": ReturnForm,
    "snooze": SnoozeForm,
    "approve": ApprovalForm,
    "ask": AskForm,
    "answer": AnswerForm,
    "withdraw": WithdrawForm,
    "stop": StopForm,
    "go_on": GoOnForm,
}


def perform(name: str, alert: RiskAlert, officer: Any, cleaned: Mapping[str, Any]) -> None:
    """Errors: those of the service."""
    if name == "note":
        services.add_note(alert_id=alert.pk, officer=officer, text=cleaned["text"], files=cleaned["attached"])
        return
    if name == "stop":
        seconds = cleaned["minutes"] * 60 or None
        services.stop(alert_id=alert.pk, officer=officer, whom=cleaned["whom"], seconds=seconds, text=cleaned["text"])
        return
    if name == "go_on":
        services.go_on(alert_id=alert.pk, officer=officer, whom=cleaned["whom"], text=cleaned["text"])
        return
    if name in ("ask", "answer", "withdraw"):
        _question(name, alert, officer, cleaned)
        return
    about: dict[str, Any] = {"alert_id": alert.pk, "officer": officer, "version": cleaned["version"]}
    if name == "claim":
        services.claim(**about)
    elif name == "release":
        services.release(**about)
    elif name == "wake":
        services.wake(**about)
    elif name == "reopen":
        services.reopen(**about, text=cleaned["text"])
    elif name == "return":
        services.give_back(**about, text=cleaned["text"])
    elif name == "assign":
        services.assign(**about, to=cleaned["to"])
    elif name == "snooze":
        services.snooze(**about, until=now() + timedelta(hours=cleaned["hours"]), text=cleaned["text"])
    elif name == "approve":
        services.approve(**about, evidence_hash=cleaned["evidence_hash"], text=cleaned["text"])
    else:
        put = services.escalate if name == "escalate" else services.dispose
        put(
            **about,
            evidence_hash=cleaned["evidence_hash"],
            to_status=cleaned["status"],
            code=cleaned["code"],
            text=cleaned["text"],
            quiet_days=cleaned["quiet_days"] or 0,
        )


def _question(name: str, alert: RiskAlert, officer: Any, cleaned: Mapping[str, Any]) -> None:
    if name == "ask":
        # Due when the day is over, where the house is.
        end = datetime.combine(cleaned["due"] + timedelta(days=1), time.min, tzinfo=business_zone())
        services.ask(
            alert_id=alert.pk,
            officer=officer,
            recipient_kind=cleaned["recipient_kind"],
            recipient=cleaned["recipient"],
            question=cleaned["text"],
            due_at=end,
        )
        return
    close = services.answer if name == "answer" else services.withdraw
    close(alert_id=alert.pk, officer=officer, request_id=cleaned["request_id"], text=cleaned["text"])


def recording_refusals(view: View, action: str) -> View:
    """The view, with an audit row for whoever is refused, whichever page or act of the alerts it was."""

    @wraps(view)
    def recorded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return view(request, *args, **kwargs)
        except RefusalRecorded:
            raise
        except PermissionDenied as refusal:
            alert_id = str(kwargs.get("alert_id") or kwargs.get("object_id") or "")
            _record_refusal(request, alert_id, action)
            raise RefusalRecorded from refusal

    return recorded


def _record_refusal(request: HttpRequest, alert_id: str, action: str) -> None:
    record_refusal(
        request.user,
        tenant=request_tenant(request),
        action=action,
        permission=DISPOSE if action in (*ACTS, "bulk", "next") else VIEW,
        object_type="risk_alert",
        object_id=alert_id,
    )


def overtaken(alert: RiskAlert) -> dict[str, Any]:
    """What a form is told whose act the alert does not take any more, before anything else was looked at."""
    headline = _("The alert is %(status)s now, and this cannot be done from there.") % {
        "status": alert.get_status_display()
    }
    return {"headline": headline, "detail": ""}


def conflict_of(error: DomainError) -> dict[str, Any]:
    """Who was first, what they did and when, in the reader's language."""
    extra = error.extra
    if error.code == "ALERT_CONFLICT" and extra.get("by"):
        status = _status(extra.get("status_now"))
        headline = deed(extra.get("action", ""), who=extra["by"], when=_local(extra.get("at", "")), status=status)
        code = extra.get("code_given", "")
        detail = f"{code} {DispositionCode(code).label}" if code in DispositionCode.values else ""
    elif error.code == "VERSION_CONFLICT":
        headline = _("The evidence has changed since you opened this alert.")
        detail = _("It has %(hits)s hits now. Look at them before you decide.") % {"hits": extra.get("hits", "?")}
        new = [f"{hit['rule_id']} {hit['trade_id']} ({hit['score']})" for hit in extra.get("new_hits", ())]
        if new:
            detail += " " + _("New: %(hits)s.") % {"hits": ", ".join(new)}
    elif error.code == "INVALID_TRANSITION":
        headline = _("The alert is %(status)s now, and this cannot be done from there.") % {
            "status": _status(extra.get("status_now"))
        }
        detail = ""
    elif error.code == "FOUR_EYES":
        headline, detail = _("Who proposed a disposition cannot approve it: another officer does."), ""
    elif error.code == "INVALID_REQUEST" and extra.get("field") in _FIELDS:
        headline, detail = str(_FIELDS[extra["field"]]), ""
    elif error.code == "ALERT_NOT_FOUND":
        headline, detail = _("No such alert."), ""
    elif error.code == "QUESTION_NOT_FOUND":
        headline, detail = _("There is no such question of this alert."), ""
    elif error.code == "ATTACHMENT_TYPE":
        headline = _("A file of this kind is not taken; nothing was saved.")
        detail = _("What is in the file counts, not its name. Taken are: %(endings)s.") % {
            "endings": " ".join(extra.get("endings", ()))
        }
    elif error.code == "ATTACHMENT_TOO_LARGE":
        headline, detail = files_too_large(), ""
    else:
        # The detail is for programs, in one language; the code is in every language's documents.
        headline, detail = _("This was not accepted."), error.code
    return {"headline": headline, "detail": detail}


# What a service refused of a field, where the form could not know.
_FIELDS = {
    "recipient": gettext_lazy("Nobody of the console has this user name, or the recipient is too long."),
    "due_at": NOT_DUE,
    "question": gettext_lazy("Too many questions of this alert are open; close one first."),
    "whom": gettext_lazy("This alert names nobody of that kind."),
    "to": NO_OFFICER,
    "assignee": gettext_lazy("This officer has the alert already."),
    "text": gettext_lazy("The text is too short, or too long."),
    "code": gettext_lazy("This reason code belongs to another outcome."),
    "to_status": gettext_lazy("Choose an outcome."),
    "quiet_days": gettext_lazy("This disposition takes no such quiet period."),
    "until": gettext_lazy("It is put aside for at most 72 hours, and never past its due."),
    "score": gettext_lazy("Only alerts with a score under 60 that take no second officer are disposed of together."),
    "rule": gettext_lazy("Only alerts of one rule are disposed of together."),
    "files": gettext_lazy("At most 5 files go with one note, and none of them empty."),
}


def deed(action: str, *, who: str, when: str, status: str) -> str:
    """Who did what with an alert, when, and what became of it, in a sentence."""
    sentences = {
        "claim": _("%(who)s claimed this alert at %(when)s."),
        "release": _("%(who)s released this alert at %(when)s."),
        "dispose": _("%(who)s disposed of this alert at %(when)s: %(status)s."),
        "reopen": _("%(who)s reopened this alert at %(when)s."),
        "assign": _("%(who)s assigned this alert at %(when)s."),
        "propose": _("%(who)s escalated this alert at %(when)s: it waits for a second officer."),
        "approve": _("%(who)s approved the disposition of this alert at %(when)s: %(status)s."),
        "return": _("%(who)s returned this alert at %(when)s."),
        "snooze": _("%(who)s put this alert aside at %(when)s."),
        "wake": _("%(who)s took this alert up again at %(when)s."),
        "handover": _("%(who)s handed this alert to another officer at %(when)s."),
        "answer": _("%(who)s recorded an answer to this question at %(when)s."),
        "withdraw": _("%(who)s withdrew this question at %(when)s."),
    }
    values = {"who": who, "when": when, "status": status}
    return sentences.get(action, _("%(who)s acted on this alert at %(when)s.")) % values


def files_too_large() -> str:
    return _("The files of one note have at most %(most)s together, those of an alert are at most %(files)d.") % {
        "most": filesizeformat(settings.ATTACHMENT_MOST_BYTES),
        "files": MOST_ON_ALERT,
    }


def _status(value: Any) -> str:
    return str(AlertStatus(value).label) if value in AlertStatus.values else str(value or "")


def _local(moment: str) -> str:
    try:
        return datetime.fromisoformat(moment).astimezone(business_zone()).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return moment
