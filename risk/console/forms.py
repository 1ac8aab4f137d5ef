"""What officers send. The services decide; these forms say early, and in the officer's language, what is missing."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.validators import MinLengthValidator
from django.utils.translation import gettext_lazy as _

from config.base.seen import seen_length
from guard.access.unmasking import MAX_REASON, MIN_REASON
from risk.alerts.acting import SERIOUS_SCORE, TEXT_MAX, TEXT_MIN, TEXT_MIN_SERIOUS, TRANSITIONS
from risk.alerts.casework import RecipientKind
from risk.alerts.judging import QUIET_DAYS
from risk.alerts.models import CODE_LETTER, DISPOSED, AlertStatus, AlertType, DispositionCode, RiskAlert
from risk.alerts.requests import RECIPIENT_MAX
from risk.alerts.stopping import ACTORS, AGENTS, REASON_MAX


def required_length(*, status: str, score: int) -> int:
    """How many characters a disposition must be explained with."""
    serious = status == AlertStatus.CONFIRMED or score >= SERIOUS_SCORE
    return TEXT_MIN_SERIOUS if serious else TEXT_MIN


class VersionForm(forms.Form):
    """The version of the alert that the officer saw."""

    version = forms.IntegerField(min_value=0, widget=forms.HiddenInput)


class FilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True


class FilesField(forms.FileField):
    """Any number of files; what they are and how large, the service looks at."""

    widget = FilesInput

    def clean(self, data: Any, initial: Any = None) -> list[Any]:
        sent = data if isinstance(data, list | tuple) else [data] if data else []
        return [super(FilesField, self).clean(one, initial) for one in sent]


class NoteForm(forms.Form):
    text = forms.CharField(max_length=TEXT_MAX, strip=True, error_messages={"required": _("Write the note first.")})
    attached = FilesField(required=False, allow_empty_file=True)


class SeenLengthValidator(MinLengthValidator):
    """At least so many characters that a reader sees."""

    def clean(self, x: str) -> int:  # type: ignore[override]  # the stubs have it of any sized thing
        return seen_length(x)


class UnmaskForm(forms.Form):
    reason = forms.CharField(
        min_length=MIN_REASON,
        max_length=MAX_REASON,
        strip=True,
        validators=[SeenLengthValidator(MIN_REASON)],
        error_messages={"required": _("Say why.")},
    )


class ReopenForm(VersionForm):
    text = forms.CharField(
        min_length=TEXT_MIN, max_length=TEXT_MAX, strip=True, error_messages={"required": _("Say why.")}
    )


class ReturnForm(ReopenForm):
    """Why a proposed disposition is given back."""


class AskForm(forms.Form):
    """A question to somebody. due: the business day at whose end it is due."""

    recipient_kind = forms.ChoiceField(choices=RecipientKind.choices)
    recipient = forms.CharField(
        max_length=RECIPIENT_MAX, strip=True, error_messages={"required": _("Say who is asked.")}
    )
    due = forms.DateField(error_messages={"required": _("Choose a day."), "invalid": _("Choose a day.")})
    text = forms.CharField(
        min_length=TEXT_MIN, max_length=TEXT_MAX, strip=True, error_messages={"required": _("Write the question.")}
    )


class AnswerForm(forms.Form):
    request_id = forms.CharField(max_length=64, widget=forms.HiddenInput)
    text = forms.CharField(max_length=TEXT_MAX, strip=True, error_messages={"required": _("Write the answer.")})


class WithdrawForm(AnswerForm):
    text = forms.CharField(
        min_length=TEXT_MIN, max_length=TEXT_MAX, strip=True, error_messages={"required": _("Say why.")}
    )


class GoOnForm(forms.Form):
    whom = forms.ChoiceField(choices=[(one, one) for one in (*ACTORS, *AGENTS)])
    text = forms.CharField(
        min_length=TEXT_MIN, max_length=REASON_MAX, strip=True, error_messages={"required": _("Say why.")}
    )


class StopForm(GoOnForm):
    """minutes: 0 stands for an AI agent until it is lifted, for an actor as long as guard blocks by itself."""

    MINUTES = (15, 60, 240, 1440, 10080, 0)
    minutes = forms.TypedChoiceField(choices=[(one, one) for one in MINUTES], coerce=int)


class SeenForm(VersionForm):
    """The evidence that the officer saw, too."""

    evidence_hash = forms.RegexField(
        r"\A[0-9a-f]{64}\Z",
        widget=forms.HiddenInput,
        error_messages={"required": _("Look at the evidence first."), "invalid": _("Look at the evidence first.")},
    )


class ApprovalForm(SeenForm):
    text = forms.CharField(max_length=TEXT_MAX, strip=True, required=False)


class AssigneeForm(forms.Form):
    to = forms.ModelChoiceField(
        User.objects.filter(is_active=True),
        to_field_name="username",
        error_messages={"required": _("Choose an officer."), "invalid_choice": _("Choose an officer.")},
    )


class HandoverForm(AssigneeForm):
    text = forms.CharField(
        min_length=TEXT_MIN, max_length=TEXT_MAX, strip=True, error_messages={"required": _("Say why.")}
    )


class AssignmentForm(AssigneeForm, VersionForm):
    """To whom, and the version that was seen."""


class SnoozeForm(VersionForm):
    hours = forms.TypedChoiceField(choices=[(hours, hours) for hours in (1, 4, 24, 48, 72)], coerce=int)
    text = forms.CharField(
        min_length=TEXT_MIN, max_length=TEXT_MAX, strip=True, error_messages={"required": _("Say why.")}
    )


class DispositionForm(SeenForm):
    status = forms.ChoiceField(
        choices=[(status.value, status.label) for status in DISPOSED],
        error_messages={"required": _("Choose an outcome.")},
    )
    code = forms.ChoiceField(choices=DispositionCode.choices, error_messages={"required": _("Choose a reason code.")})
    text = forms.CharField(max_length=TEXT_MAX, strip=True, required=False)
    quiet_days = forms.TypedChoiceField(choices=[(days, days) for days in QUIET_DAYS], coerce=int, required=False)

    def __init__(self, *args: Any, alert: RiskAlert, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.alert = alert

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        status, code = cleaned.get("status", ""), cleaned.get("code", "")
        if status and code and not code.startswith(CODE_LETTER[AlertStatus(status)]):
            self.add_error("code", _("This reason code belongs to another outcome."))
        if cleaned.get("quiet_days") and status == AlertStatus.CONFIRMED:
            self.add_error("quiet_days", _("A confirmed violation has no quiet period."))
        text = cleaned.get("text", "")
        if status and "text" in cleaned:
            required = required_length(status=status, score=self.alert.score)
            if len(text) < required:
                self.add_error(
                    "text",
                    _("Explain it in at least %(required)d characters; these are %(given)d.")
                    % {"required": required, "given": len(text)},
                )
        return cleaned

    @property
    def outcomes(self) -> list[tuple[str, Any]]:
        """What may follow the alert's status: `confirmed` is only ever closed, when its follow-up is done."""
        # A pending alert is claimed in the same transaction.
        source = AlertStatus.IN_REVIEW if self.alert.status == AlertStatus.PENDING else self.alert.status
        return [(status.value, status.label) for status in DISPOSED if status in TRANSITIONS.get(source, frozenset())]

    @property
    def codes(self) -> list[tuple[str, Any, str]]:
        """(code, words, the status that it belongs to)."""
        by_letter = {letter: status.value for status, letter in CODE_LETTER.items()}
        return [(code.value, code.label, by_letter[code.value[0]]) for code in DispositionCode]

    @property
    def quiet_choices(self) -> list[int]:
        """Of a customer's alert alone."""
        return list(QUIET_DAYS) if self.alert.alert_type == AlertType.EVENT else []

    @property
    def short_text(self) -> int:
        return TEXT_MIN

    @property
    def long_text(self) -> int:
        return TEXT_MIN_SERIOUS


class BulkDispositionForm(DispositionForm):
    """One reason for several alerts; each carries its version and evidence with it. alert: the one of the highest
    score."""

    version = None  # type: ignore[assignment]
    evidence_hash = None  # type: ignore[assignment]
    quiet_days = None  # type: ignore[assignment]
