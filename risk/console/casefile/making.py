"""A case file is made, put on the record, and only then handed out; one that is handed in is looked up by its hash."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import IO

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from config.base.clock import now
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from risk.alerts.casework import CaseFile
from risk.alerts.evidence import evidence_hash
from risk.alerts.models import RiskAlert
from risk.console.casefile.content import local, sections_of
from risk.console.casefile.pdf import pdf_of
from risk.console.casework import Words, files_of, questions_of
from risk.console.page import alert_page
from risk.console.sight import Sight

_PIECE = 256 * 1024


@dataclass(frozen=True)
class Made:
    row: CaseFile
    content: bytes


def render(alert: RiskAlert, *, sight: Sight, by: str, at: datetime) -> tuple[bytes, str]:
    """The PDF in the language that is active, and the hash of the evidence in it. The same alert, person, instant and
    language give the same bytes. What is in it is bounded as the page is: 100 hits, 200 acts, 40 trades beside the
    offending; it says where there is more.
    """
    words = Words(alert)
    evidence = evidence_hash(alert)
    sections = sections_of(
        alert,
        alert_page(alert, sight),
        files=files_of(alert, words),
        questions=questions_of(alert, words, at),
        evidence=evidence,
    )
    title = _("Case file of alert %(alert)s") % {"alert": alert.pk}
    intro = [
        _("Made %(at)s by %(who)s. Times are of the business time zone.") % {"at": local(at), "who": by},
        _("Customers are masked. What cannot be drawn stands as □. The SHA-256 of this file is on record."),
    ]
    foot = f"{title} · {local(at)}"
    return pdf_of(title=title, intro=intro, foot=foot, sections=sections, at=at), evidence


def make_case_file(*, alert: RiskAlert, person: User, sight: Sight, at: datetime | None = None) -> Made:
    """Makes it and records it: the row and `evidence_exported/exported` are committed before anybody has a byte.

    alert: one that the caller has read and may show to this person.
    Errors: RowRefused: no record, no file.
    """
    moment = at or now()
    content, evidence = render(alert, sight=sight, by=person.get_username(), at=moment)
    digest = hashlib.sha256(content).hexdigest()
    language = (get_language() or "")[:10]
    with transaction.atomic(durable=True):
        row = CaseFile.objects.create(
            tenant=alert.tenant, sha256=digest, alert=alert, alert_version=alert.version, evidence_hash=evidence,
            language=language, size=len(content), made_by=person, made_at=moment,
        )  # fmt: skip
        record(
            tenant=alert.tenant,
            event_type=EventType.EVIDENCE_EXPORTED,
            decision=Decision.EXPORTED,
            actor_type=ActorType.STAFF,
            actor_id=person.get_username(),
            object_type="risk_alert",
            object_id=alert.pk,
            risk_score=alert.score,
            input_summary={
                "format": "pdf", "sha256": digest, "bytes": len(content), "language": language, "evidence": evidence,
                "version": alert.version,
            },
        )  # fmt: skip
    return Made(row, content)


def sha256_of(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()


def found_by_hash(*, tenant: str, sha256: str) -> list[CaseFile]:
    """The case files of this hash that were handed out, newest first; none where not a byte may differ. 1 query."""
    rows = CaseFile.objects.filter(tenant=tenant, sha256=sha256.lower()).select_related("made_by")
    return list(rows[:20])


def case_files_of(alert: RiskAlert) -> list[CaseFile]:
    """Those of an alert that were handed out, newest first, at most 20. 1 query."""
    return list(CaseFile.objects.filter(alert=alert).select_related("made_by")[:20])
