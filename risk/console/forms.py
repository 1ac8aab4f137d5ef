"""What officers send. The services decide; these forms say early, and in the officer's language, what is missing."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.validators import MinLengthValidator
from django.utils.translation import gettext_lazy as _

from config.base.clock import business_date, now
from config.base.seen import seen_length
from guard.access.roles import may, tenant_of
from guard.access.unmasking import MAX_REASON, MIN_REASON
from risk.alerts.acting import DISPOSE, SERIOUS_SCORE, TEXT_MAX, TEXT_MIN, TEXT_MIN_SERIOUS, TRANSITIONS
from risk.alerts.casework import RecipientKind
from risk.alerts.judging import QUIET_DAYS
from risk.alerts.models import CODE_LETTER, DISPOSED, AlertStatus, AlertType, DispositionCode, RiskAlert
from risk.alerts.requests import LONGEST, RECIPIENT_MAX
from risk.alerts.stopping import ACTORS, AGENTS, REASON_MAX

# Said of a field by its form, and by its service where the form could not know.
NOT_DUE = _("A question is due within 92 days, and not today's past.")
NO_OFFICER = _("Choose an officer.")


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


class SeenLengthValidator(MinLengthValidator):
    """At least so many characters that a reader sees."""

    def clean(self, x: str) -> int:  # type: ignore[override]  # the stubs have it of any sized thing
        return seen_length(x)


class SeenTextField(forms.CharField):
    """A text of least to most characters; the least are counted as a reader sees them, so blanks and signs without
    width alone are none."""

    def __init__(self, *, least: int = 1, most: int, required: bool = True, missing: Any = None) -> None:
        super().__init__(
            max_length=most, strip=True, required=required, error_messages={"required": missing} if missing else None
        )
        self.validators.append(SeenLengthValidator(least))

    def to_python(self, value: Any) -> str:
        text = str(super().to_python(value) or "")
        return text if seen_length(text) else ""


class NoteForm(forms.Form):
    text = SeenTextField(most=TEXT_MAX, missing=_("Write the note first."))
    attached = FilesField(required=False, allow_empty_file=True)


class UnmaskForm(forms.Form):
    reason = SeenTextField(least=MIN_REASON, most=MAX_REASON, missing=_("Say why."))


class ReopenForm(VersionForm):
    text = SeenTextField(least=TEXT_MIN, most=TEXT_MAX, missing=_("Say why."))


class ReturnForm(ReopenForm):
    """Why a proposed disposition is given back."""


class AskForm(forms.Form):
    """A question to somebody. due: the business day at whose end it is due."""

    recipient_kind = forms.ChoiceField(choices=RecipientKind.choices)
    recipient = SeenTextField(most=RECIPIENT_MAX, missing=_("Say who is asked."))
    due = forms.DateField(error_messages={"required": _("Choose a day."), "invalid": _("Choose a day.")})
    text = SeenTextField(least=TEXT_MIN, most=TEXT_MAX, missing=_("Write the question."))

    def clean_due(self) -> date:
        due: date = self.cleaned_data["due"]
        if not timedelta(0) <= due - business_date(now()) < LONGEST:
            raise forms.ValidationError(NOT_DUE)
        return due


class AnswerForm(forms.Form):
    request_id = forms.CharField(max_length=64, widget=forms.HiddenInput)
    text = SeenTextField(most=TEXT_MAX, missing=_("Write the answer."))


class WithdrawForm(AnswerForm):
    text = SeenTextField(least=TEXT_MIN, most=TEXT_MAX, missing=_("Say why."))


class GoOnForm(forms.Form):
    whom = forms.ChoiceField(choices=[(one, one) for one in (*ACTORS, *AGENTS)])
    text = SeenTextField(least=TEXT_MIN, most=REASON_MAX, missing=_("Say why."))


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
    text = SeenTextField(most=TEXT_MAX, required=False)


class AssigneeForm(forms.Form):
    """tenant: whose officers may be named. Whoever else there is, is told as somebody that there is not."""

    to = forms.ModelChoiceField(
        User.objects.filter(is_active=True),
        to_field_name="username",
        error_messages={"required": NO_OFFICER, "invalid_choice": NO_OFFICER},
    )

    def __init__(self, *args: Any, tenant: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tenant = tenant

    def clean_to(self) -> User:
        to: User = self.cleaned_data["to"]
        if tenant_of(to) != self._tenant or not may(to, DISPOSE):
            raise forms.ValidationError(NO_OFFICER)
        return to


class HandoverForm(AssigneeForm):
    text = SeenTextField(least=TEXT_MIN, most=TEXT_MAX, missing=_("Say why."))


class AssignmentForm(AssigneeForm, VersionForm):
    """To whom, and the version that was seen."""


class SnoozeForm(VersionForm):
    hours = forms.TypedChoiceField(choices=[(hours, hours) for hours in (1, 4, 24, 48, 72)], coerce=int)
    text = SeenTextField(least=TEXT_MIN, most=TEXT_MAX, missing=_("Say why."))


class DispositionForm(SeenForm):
    status = forms.ChoiceField(
        choices=[(status.value, status.label) for status in DISPOSED],
        error_messages={"required": _("Choose an outcome.")},
    )
    code = forms.ChoiceField(choices=DispositionCode.choices, error_messages={"required": _("Choose a reason code.")})
    text = SeenTextField(most=TEXT_MAX, required=False)
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
            if (given := seen_length(text)) < required:
                self.add_error(
                    "text",
                    _("Explain it in at least %(required)d characters; these are %(given)d.")
                    % {"required": required, "given": given},
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
