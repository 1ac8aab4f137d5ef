"""Notes with files: what is taken, what is kept, who opens it, and what is left when its customer is erased."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import threading
import zipfile
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection

from config.base.clock import now
from config.base.errors import DomainError
from guard.audit.models import AuditLog
from risk.alerts import attaching
from risk.alerts.attaching import opened
from risk.alerts.casework import AlertAttachment, AttachmentChunk
from risk.alerts.models import AlertAction, RiskAlert
from risk.alerts.services import add_note
from tests.memory.erasure.helpers import erase
from tests.risk.console.make import make_alert, make_auditor, make_customer, make_manager, make_officer

pytestmark = pytest.mark.django_db(transaction=True)
PDF = b"%PDF-1.7\n" + bytes(range(256)) * 8


def make_file(data: bytes = PDF, name: str = "recording of the branch.pdf") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, data, content_type="text/html")


def office(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("[Content_Types].xml", *names):
            archive.writestr(name, "<x/>")
    return file.getvalue()


def note(alert: RiskAlert, officer: Any, *files: SimpleUploadedFile) -> AlertAction:
    return add_note(alert_id=alert.pk, officer=officer, text="the branch sent this", files=files)


def refused(code: str, work: Any) -> DomainError:
    with pytest.raises(DomainError) as caught:
        work()
    assert caught.value.code == code
    return caught.value


def test_a_file_is_kept_whole_in_pieces_and_handed_out_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "CHUNK", 1000)
    alert, lin = make_alert(), make_officer()
    action = note(alert, lin, make_file())
    [row] = AlertAttachment.objects.all()
    assert (row.action_id, row.size, row.sha256) == (action.pk, len(PDF), hashlib.sha256(PDF).hexdigest())  # type: ignore[attr-defined]
    assert [bytes(one.data) for one in row.chunks.order_by("number")] == [PDF[:1000], PDF[1000:2000], PDF[2000:]]  # type: ignore[attr-defined]
    found, content = opened(alert_id=alert.pk, attachment_id=row.pk, person=lin)
    assert (content.read(), found.media_type) == (PDF, "application/pdf")
    told = AuditLog.objects.filter(object_type="alert_attachment", object_id=row.pk).order_by("id")
    assert [(one.event_type, one.decision) for one in told] == [
        ("data_import", "completed"), ("evidence_exported", "viewed"),
    ]  # fmt: skip
    assert all(one.input_summary["sha256"] == row.sha256 for one in told)
    assert "recording of" not in json.dumps([one.input_summary for one in told])
    alert.refresh_from_db()
    assert alert.version == 1


@pytest.mark.parametrize(
    ("data", "name", "kept_as", "media_type"),
    [
        (PDF, "../../etc/pass\u202ewd.pdf", "passwd.pdf", "application/pdf"),
        (PDF, "invoice.exe", "invoice.exe.pdf", "application/pdf"),
        (b"\x89PNG\r\n\x1a\n0000", "a.PNG", "a.PNG", "image/png"),
        ("日期,金额\n2026-11-29,350000\n".encode("gb18030"), "流水.csv", "流水.csv", "text/plain"),
        (office("xl/workbook.xml"), "x", "x.xlsx", attaching.kind_of(io.BytesIO(office("xl/workbook.xml"))).media_type),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", " .wav", "wav.wav", "audio/wav"),
    ],
)
def test_what_is_in_a_file_says_what_it_is(data: bytes, name: str, kept_as: str, media_type: str) -> None:
    alert = make_alert()
    note(alert, make_officer(), make_file(data, name))
    row = AlertAttachment.objects.get()
    assert (row.file_name, row.media_type) == (kept_as, media_type)


@pytest.mark.parametrize(
    "data",
    [
        b"MZ\x90\x00\x03\x00\x00\x00",
        b"  <html><script>alert(1)</script>",
        b"\xef\xbb\xbf<svg onload=alert(1)>",
        b"GIF89a\x01\x00",
        office("word/document.xml", "word/vbaProject.bin"),
        office("META-INF/MANIFEST.MF"),
        b"PK\x03\x04 and no more",
        b"plain\x00text",
        b"   \n ",
    ],
)
def test_what_is_no_paper_picture_table_or_recording_is_refused_under_any_name(data: bytes) -> None:
    alert, lin = make_alert(), make_officer()
    refused("ATTACHMENT_TYPE", lambda: note(alert, lin, make_file(data, "report.pdf")))
    assert not AlertAction.objects.exists()


def make_bomb(members: int, *, told: int) -> bytes:
    """A zip of empty members, whose end says that there are so many."""
    head, entry = b"PK\x03\x04" + bytes(26), b"PK\x01\x02" + bytes(24) + b"\x01" + bytes(17) + b"a"
    directory = entry * members
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, told, told, len(directory), len(head), 0)
    return head + directory + end


@pytest.mark.parametrize("told", [1, 65_535])
def test_a_zip_of_very_many_members_is_refused_unread(told: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_args: Any, **_fields: Any) -> None:
        raise AssertionError("its directory is read")

    monkeypatch.setattr(zipfile, "ZipFile", read)
    alert, lin = make_alert(), make_officer()
    refused("ATTACHMENT_TYPE", lambda: note(alert, lin, make_file(make_bomb(100_000, told=told), "m.docx")))
    with pytest.raises(AssertionError, match="is read"):
        note(alert, lin, make_file(make_bomb(10, told=10), "m.docx"))


def test_one_bad_file_and_the_note_is_not_made(settings: Any) -> None:
    alert, lin = make_alert(), make_officer()
    refused("ATTACHMENT_TYPE", lambda: note(alert, lin, make_file(), make_file(b"MZ\x90\x00")))
    refused("INVALID_REQUEST", lambda: note(alert, lin, make_file(b"")))
    refused("INVALID_REQUEST", lambda: note(alert, lin, *(make_file() for _ in range(6))))
    settings.ATTACHMENT_MOST_BYTES = len(PDF) + 10
    refused("ATTACHMENT_TOO_LARGE", lambda: note(alert, lin, make_file(), make_file()))
    assert not AlertAction.objects.exists()
    assert not AlertAttachment.objects.exists()
    note(alert, lin, make_file())
    assert AlertAttachment.objects.count() == 1


def test_a_file_that_was_changed_in_the_database_is_not_given_out(caplog: pytest.LogCaptureFixture) -> None:
    alert, lin = make_alert(), make_officer()
    note(alert, lin, make_file())
    row = AlertAttachment.objects.get()
    AttachmentChunk.objects.update(data=PDF[:-1] + b"!")
    refused("ATTACHMENT_DAMAGED", lambda: opened(alert_id=alert.pk, attachment_id=row.pk, person=lin))
    assert row.pk in caplog.text
    told = AuditLog.objects.get(event_type="evidence_exported")
    assert (told.decision, told.code, told.object_id) == ("refused", "ATTACHMENT_DAMAGED", row.pk)


def test_only_who_may_see_customers_in_clear_opens_a_file_of_their_own_tenant() -> None:
    alert, lin = make_alert(), make_officer()
    note(alert, lin, make_file())
    row = AlertAttachment.objects.get()
    for person in (make_manager(), make_auditor()):
        refused("FORBIDDEN", lambda person=person: opened(alert_id=alert.pk, attachment_id=row.pk, person=person))  # type: ignore[misc]
    assert AuditLog.objects.filter(event_type="authz", object_id=row.pk).count() == 2
    yan = make_officer("yan", tenant="east")
    refused("ATTACHMENT_NOT_FOUND", lambda: opened(alert_id=alert.pk, attachment_id=row.pk, person=yan))
    other = make_alert("C00018")
    refused("ATTACHMENT_NOT_FOUND", lambda: opened(alert_id=other.pk, attachment_id=row.pk, person=lin))
    refused("FORBIDDEN", lambda: note(alert, make_manager("mo"), make_file()))


def test_two_officers_add_the_same_file_at_once_and_both_are_kept() -> None:
    alert = make_alert()
    officers = [make_officer("lin"), make_officer("zhou")]
    start = threading.Barrier(2)

    def work(officer: Any) -> None:
        try:
            start.wait(timeout=20)
            note(alert, officer, make_file())
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(one,)) for one in officers]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(row.added_by.username for row in AlertAttachment.objects.all()) == ["lin", "zhou"]


def test_an_erasure_takes_bytes_and_name_and_leaves_what_there_was() -> None:
    make_customer()
    alert, lin = make_alert(), make_officer()
    other = make_alert("C00018")
    note(alert, lin, make_file(name="王建国.pdf"), make_file(PDF + b"2"))
    note(other, lin, make_file())
    _code, told = erase("C00017")
    assert told["removed"]["risk.attachments"] == {"attachments": 2}
    gone = AlertAttachment.objects.filter(alert=alert)
    assert [(row.file_name, row.erased_at is not None, len(row.sha256)) for row in gone] == [("", True, 64)] * 2
    assert AttachmentChunk.objects.filter(attachment__alert=alert).count() == 0
    assert AttachmentChunk.objects.filter(attachment__alert=other).count() == 1
    refused("ATTACHMENT_ERASED", lambda: opened(alert_id=alert.pk, attachment_id=gone[0].pk, person=lin))
    refused("CUSTOMER_ERASED", lambda: note(alert, lin, make_file()))
    note(alert, lin)  # words are the officer's, and evidence
    assert now() >= gone[0].erased_at  # type: ignore[operator]
