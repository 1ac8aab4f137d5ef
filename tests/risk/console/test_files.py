"""Files on the alert's page: sent with a note, listed with their hash, saved by who may, run by nobody's browser."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import translation

from guard.audit.models import AuditLog
from risk.alerts.casework import AlertAttachment, AttachmentChunk
from risk.alerts.models import AlertAction, RiskAlert
from tests.risk.console.make import make_alert, make_client, make_customer, make_manager, make_officer

pytestmark = pytest.mark.django_db
PDF = b"%PDF-1.7\n<script>alert(1)</script>"
SHA = hashlib.sha256(PDF).hexdigest()


def page_of(client: Client, alert: RiskAlert) -> str:
    return client.get(reverse("admin:risk_riskalert_change", args=[alert.pk])).content.decode()


def send(client: Client, alert: RiskAlert, *files: SimpleUploadedFile, text: str = "The branch sent this.") -> Any:
    address = reverse("admin:risk_riskalert_note", args=[alert.pk])
    return client.post(address, {"text": text, "attached": list(files)})


def make_file(name: str = "paper.pdf", data: bytes = PDF) -> SimpleUploadedFile:
    return SimpleUploadedFile(name, data)


def test_a_file_comes_with_a_note_and_is_saved_with_a_masked_name() -> None:
    make_customer()
    alert = make_alert()
    lin = make_client(make_officer())
    assert send(lin, alert, make_file("王建国 C00017 13812345678.pdf"), make_file()).status_code == 302
    page = page_of(lin, alert)
    assert page.count(SHA) == 2
    assert "王建国" not in page
    assert "13812345678" not in page
    address = re.findall(r'href="([^"]*/file/[^"]*)"', page)[0]
    answer = lin.get(address)
    assert b"".join(answer.streaming_content) == PDF  # type: ignore[attr-defined]
    assert answer["Content-Type"] == "application/pdf"
    assert answer["Content-Disposition"].startswith("attachment;")
    assert "138" not in answer["Content-Disposition"]
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Security-Policy"].startswith("sandbox;")
    assert "no-store" in answer["Cache-Control"]


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_a_file_that_is_not_what_was_stored_is_told_as_that(language: str) -> None:
    alert, lin = make_alert(), make_officer()
    send(make_client(lin), alert, make_file())
    AttachmentChunk.objects.update(data=PDF[:-1] + b"!")
    row = AlertAttachment.objects.get()
    answer = make_client(lin, language=language).get(reverse("admin:risk_riskalert_file", args=[alert.pk, row.pk]))
    assert answer.status_code == 500
    page = answer.content.decode()
    assert "ATTACHMENT_DAMAGED" in page
    with translation.override(language):
        assert translation.gettext("The file is not what was stored") in page
    assert "%PDF" not in page
    assert AuditLog.objects.filter(code="ATTACHMENT_DAMAGED", actor_id="lin").count() == 1


def test_what_is_refused_says_why_and_keeps_the_words() -> None:
    alert, lin = make_alert(), make_client(make_officer())
    answer = send(lin, alert, make_file(data=b"MZ\x90\x00"), text="What I had written.")
    assert answer.status_code == 422
    page = answer.content.decode()
    assert "A file of this kind is not taken; nothing was saved." in page
    assert "What I had written." in page
    assert not AlertAction.objects.exists()


def test_too_large_a_body_is_thrown_away_unread(settings: Any) -> None:
    settings.ATTACHMENT_MOST_BYTES = 4096
    alert, lin = make_alert(), make_client(make_officer())
    answer = send(lin, alert, make_file(data=PDF + b"0" * 200_000), text="What I had written.")
    assert answer.status_code == 422
    assert "have at most" in answer.content.decode()
    assert "What I had written." in answer.content.decode()
    assert not AlertAttachment.objects.exists()


def test_a_manager_sees_that_there_are_files_and_opens_none() -> None:
    alert, lin = make_alert(), make_client(make_officer())
    send(lin, alert, make_file())
    row = AlertAttachment.objects.get()
    meng, yan = make_client(make_manager()), make_client(make_officer("yan", tenant="east"))
    page = page_of(meng, alert)
    assert SHA in page
    address = reverse("admin:risk_riskalert_file", args=[alert.pk, row.pk])
    assert address not in page
    assert meng.get(address).status_code == 403
    assert AuditLog.objects.filter(event_type="authz", actor_id="meng").count() == 1
    assert send(meng, alert, make_file()).status_code == 403
    assert yan.get(address).status_code == 404
    assert lin.get(reverse("admin:risk_riskalert_file", args=[alert.pk, "0" * 30])).status_code == 404
    assert not AuditLog.objects.filter(event_type="evidence_exported").exists()
    assert AlertAttachment.objects.count() == 1
