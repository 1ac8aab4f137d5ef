"""The case file: whole, masked, drawn in both languages, the same bytes for the same state, and known by its hash."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.utils import translation

from config.base.clock import now
from config.base.pii import hidden
from guard.audit.models import AuditLog
from guard.audit.services import RowRefused
from risk.alerts.casework import AlertAttachment, CaseFile
from risk.alerts.evidence import evidence_hash
from risk.alerts.models import AlertAction, RiskAlert
from risk.alerts.requests import answer, ask
from risk.alerts.services import add_note, claim, dispose
from risk.console.casefile import making
from risk.console.casefile.making import render
from risk.console.casefile.pdf import _parts, shown
from risk.console.sight import Sight
from tests.risk.console.make import (
    make_alert,
    make_auditor,
    make_client,
    make_customer,
    make_hit,
    make_manager,
    make_officer,
    seen,
)  # fmt: skip

pytestmark = pytest.mark.django_db(transaction=True)
AT = datetime(2030, 3, 2, 4, 0, tzinfo=UTC)
LONG = "The recording shows that the customer asked for it, in a branch. 客户 13812345678 自己要求。"


def make_case() -> tuple[RiskAlert, Any]:
    make_customer()
    alert, lin = make_alert(score=85), make_officer()
    claim(alert_id=alert.pk, officer=lin)
    add_note(
        alert_id=alert.pk, officer=lin, text="王建国说录音在分行",
        files=[SimpleUploadedFile("王建国 流水.pdf", b"%PDF-1.7 x")],
    )  # fmt: skip
    ask(
        alert_id=alert.pk, officer=lin, recipient_kind="branch", recipient="浦东支行",
        question="双录在哪里？请尽快说明情况。", due_at=datetime(2026, 12, 20, tzinfo=UTC),
    )  # fmt: skip
    alert.refresh_from_db()
    dispose(alert_id=alert.pk, officer=lin, to_status="confirmed", code="C02", text=LONG, **seen(alert))
    return RiskAlert.objects.select_related("assignee", "disposed_by", "proposed_by").get(pk=alert.pk), lin


def text_of(content: bytes) -> str:
    document = pypdfium2.PdfDocument(content)
    return "\n".join(page.get_textpage().get_text_range() for page in document).replace("\r", "")


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_it_holds_the_case_and_no_name(language: str) -> None:
    alert, lin = make_case()
    with translation.override(language):
        content, evidence = render(alert, sight=Sight(lin), by="lin", at=AT)
        again, _evidence = render(alert, sight=Sight(lin), by="lin", at=AT)
    assert content == again
    # Lines are broken where a cell ends: what is looked for must not mind.
    text = "".join(text_of(content).split())
    file = AlertAttachment.objects.get().sha256
    told = ("T-C00017-1", "RISK-001", "浦东支行", "双录在哪里", "C02", "2030-03-0212:00:00", "350,000.00")
    for part in (alert.pk, evidence, file, *told):
        assert part in text, part
    for name in ("王建国", "C00017@", "13812345678"):
        assert name not in text
    assert "C00017" not in text.replace("T-C00017", "")


def test_ink_is_on_every_page_and_chinese_is_drawn() -> None:
    alert, lin = make_case()
    content, _evidence = render(alert, sight=Sight(lin), by="lin", at=AT)
    for page in pypdfium2.PdfDocument(content):
        image = page.render(scale=1).to_pil().convert("L")
        assert sum(image.histogram()[:128]) > 200
    assert shown("案卷 \U0001f600 \u202eabc") == "案卷 □ abc"


def test_its_hash_is_on_record_before_it_leaves_and_found_again(tmp_path: Path) -> None:
    alert, lin = make_case()
    client = make_client(lin)
    page = f"/admin/risk/riskalert/{alert.pk}/"
    answer = client.post(f"{page}casefile/")
    digest = hashlib.sha256(answer.content).hexdigest()
    assert (answer["Content-Type"], answer["X-Content-Type-Options"]) == ("application/pdf", "nosniff")
    assert answer["Content-Disposition"].startswith("attachment;")
    told = AuditLog.objects.get(event_type="evidence_exported", decision="exported")
    assert (told.object_id, told.input_summary["sha256"], told.input_summary["evidence"]) == (
        alert.pk, digest, evidence_hash(alert),
    )  # fmt: skip
    assert digest in client.get(f"{page}change/").content.decode()

    def check(data: bytes) -> str:
        sent = {"handed_in": SimpleUploadedFile("a.pdf", data)}
        return str(client.post(f"{page}check/", sent, follow=True).content.decode())

    assert "It is the case file that lin made at" in check(answer.content)
    assert "No case file that was handed out has these bytes." in check(answer.content + b"\n")
    file = tmp_path / "case.pdf"
    file.write_bytes(answer.content)
    out = StringIO()
    call_command("verify_case_file", str(file), "--json", stdout=out)
    assert json.loads(out.getvalue())["case_files"][0]["alert_id"] == alert.pk
    with pytest.raises(CommandError) as caught:
        call_command("verify_case_file", str(file), "--tenant", "east", stdout=StringIO())
    assert caught.value.returncode == 1


def test_no_record_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    alert, lin = make_case()

    def refuse(**_fields: Any) -> None:
        raise RowRefused

    monkeypatch.setattr(making, "record", refuse)
    answer = make_client(lin).post(f"/admin/risk/riskalert/{alert.pk}/casefile/")
    assert answer.status_code == 503
    assert b"%PDF" not in answer.content
    assert not CaseFile.objects.exists()


def test_who_may_act_on_the_case_makes_one_and_nobody_else() -> None:
    alert, lin = make_case()
    address = f"/admin/risk/riskalert/{alert.pk}/casefile/"
    assert make_client(lin).post(address).status_code == 200
    manager = make_client(make_manager())
    for route in ("casefile", "check"):
        assert manager.post(f"/admin/risk/riskalert/{alert.pk}/{route}/").status_code == 403
    page = manager.get(f"/admin/risk/riskalert/{alert.pk}/change/").content.decode()
    assert CaseFile.objects.get().sha256 in page, "which there are, everybody with the case sees"
    assert 'action="' not in page[page.index('id="casefile"') : page.index("</section>", page.index('id="casefile"'))]
    assert make_client(make_auditor()).post(address).status_code == 403
    assert make_client(make_officer("yan", tenant="east")).post(address).status_code == 404
    assert make_client(make_manager("mo")).get(address).status_code == 302
    assert CaseFile.objects.count() == 1


@pytest.mark.parametrize(
    "apart", ["\u200b", "\u2060", "\u00ad", "\u202e", "\ufeff\u180e\u200d", "\r\r\r", "\ufe0f", " "]
)
def test_what_is_not_drawn_brings_no_name_into_it(apart: str) -> None:
    make_customer()
    alert, lin = make_alert(), make_officer()
    said = f"王{apart}建国（C00{apart}017，Ｃ００{apart}０１７）电话138{apart}12345678，证件110101{apart}199003074514"
    add_note(
        alert_id=alert.pk, officer=lin, text=said,
        files=[SimpleUploadedFile(f"王{apart}建国.pdf", b"%PDF-1.7 x")],
    )  # fmt: skip
    ask(
        alert_id=alert.pk, officer=lin, recipient_kind="advisor", recipient=f"王{apart}建国", question=said,
        due_at=now() + timedelta(days=2),
    )  # fmt: skip
    content, _evidence = render(alert, sight=Sight(lin), by="lin", at=AT)
    page = make_client(lin).get(f"/admin/risk/riskalert/{alert.pk}/change/").content.decode()
    for text in (text_of(content), re.sub("<[^>]+>", "", page)):
        text = "".join(char for char in text if char.isalnum()).replace("TC00017", "")
        assert "电话" in text
        for name in ("王建国", "C00017", "Ｃ０００１７", "13812345678", "110101199003074514"):
            assert name not in text


def test_what_the_mask_looks_at_is_without_what_the_paper_leaves_out() -> None:
    dropped = "".join(chr(code) * 3 for code in range(sys.maxunicode + 1) if not shown(chr(code)))
    assert len(dropped) > 100_000
    assert hidden(f"王{dropped}建国", {"王建国"}) == "***"


LONGEST = (
    "长" * 4000,
    "word " * 800,
    "W" * 4000,
    "WWWWWWWWWWWWWWWW " * 235,
    "一\n" * 2000,
    "\n" * 10 + "长\u3000" * 1990,
)


@pytest.mark.parametrize("longest", LONGEST, ids=["cjk", "words", "one", "wide", "lines", "blanks"])
def test_the_longest_of_everything_is_drawn_whole(longest: str) -> None:
    make_customer()
    alert, lin = make_alert(score=85), make_officer()
    longest = longest[:3990].rstrip() + "完"
    make_hit(alert, number=2, evidence_key="E" * 100)
    claim(alert_id=alert.pk, officer=lin)
    add_note(alert_id=alert.pk, officer=lin, text=longest, files=[SimpleUploadedFile("长" * 120 + ".txt", b"x")])
    row = ask(
        alert_id=alert.pk, officer=lin, recipient_kind="branch", recipient="浦" * 80, question=longest,
        due_at=now() + timedelta(days=2),
    )  # fmt: skip
    answer(alert_id=alert.pk, officer=lin, request_id=row.pk, text=longest)
    alert.refresh_from_db()
    dispose(alert_id=alert.pk, officer=lin, to_status="confirmed", code="C02", text=longest, **seen(alert))
    alert.refresh_from_db()
    told = make_client(lin).post(f"/admin/risk/riskalert/{alert.pk}/casefile/")
    assert told.status_code == 200
    text = text_of(told.content)
    for char in "长词W一完":
        if char in longest:
            assert text.count(char) >= 4 * longest.count(char), "in the note, the question, the answer and the reason"


@pytest.mark.parametrize("in_line", [0, 1, 4, 60])
@pytest.mark.parametrize("longest", ["", "a", *LONGEST])
def test_a_long_cell_is_cut_and_nothing_of_it_lost(longest: str, in_line: int) -> None:
    parts = _parts(longest, in_line)
    assert "".join(parts) == longest
    assert len(parts) == 1 or all(parts)


@pytest.mark.slow  # the size it is bounded by has to be there
def test_a_large_alert_says_what_is_left_out() -> None:
    make_customer()
    alert, lin = make_alert(), make_officer()
    for number in range(2, 402):
        make_hit(alert, number=number)
    AlertAction.objects.bulk_create(
        AlertAction(
            alert=alert,
            action="note",
            actor=lin,
            text=f"note {number} " + "长" * (300 if number % 20 else 3900),
            alert_version=1,
        )
        for number in range(300)
    )
    content, _evidence = render(alert, sight=Sight(lin), by="lin", at=AT)
    text = "".join(text_of(content).split())
    assert "Thenewest100areinit." in text
    assert "Thenewest200areinit." in text
    assert len(content) < 3_000_000
