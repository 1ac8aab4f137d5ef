"""Files that belong to notes: taken in once, told by their SHA-256, handed out as they were.

They lie in the database, in pieces, and not in a directory: the file, its row and its audit row are one transaction, so
there is never one without the others; every web process has it, backups and replicas hold it with what it proves;
pruning and erasure take it in the transaction that says so. (docs/decisions/0036-files-of-officers.md)
"""

from __future__ import annotations

import hashlib
import logging
import re
import unicodedata
from collections.abc import Sequence
from tempfile import SpooledTemporaryFile
from typing import IO

from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.base import File

from config.base.errors import DomainError
from guard.access.people import record_refusal
from guard.access.roles import may, tenant_of
from guard.access.unmasking import UNMASK
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from memory.erasure.tombstones import refuse_erased
from risk.alerts.casework import AlertAttachment, AttachmentChunk
from risk.alerts.models import AlertAction, AlertType, RiskAlert
from risk.alerts.sniffing import Kind, kind_of

logger = logging.getLogger(__name__)

CHUNK = 512 * 1024  # bytes: escaped, and with its statement, well under the smallest max_allowed_packet (1 MiB x 2)
MOST_FILES = 5  # with one note
MOST_ON_ALERT = 100
_NAME_CHARS = 120
_IN_MEMORY = 2 * 1024 * 1024
VIEW = "risk.view_riskalert"


def checked_files(files: Sequence[File]) -> list[tuple[str, Kind]]:
    """Name and kind of each. Nothing is written yet.

    Errors: ATTACHMENT_TOO_LARGE (together more than ATTACHMENT_MOST_BYTES), ATTACHMENT_TYPE, INVALID_REQUEST for too
    many or an empty one.
    """
    if len(files) > MOST_FILES:
        said = f"{len(files)} files; at most {MOST_FILES} go with one note"
        raise DomainError("INVALID_REQUEST", said, field="files")
    if sum(file.size for file in files) > settings.ATTACHMENT_MOST_BYTES:
        said = f"the files of one note have at most {settings.ATTACHMENT_MOST_BYTES} bytes together"
        raise DomainError("ATTACHMENT_TOO_LARGE", said, most=settings.ATTACHMENT_MOST_BYTES)
    found = []
    for file in files:
        if not file.size:
            raise DomainError("INVALID_REQUEST", "a file is empty", field="files")
        kind = kind_of(file)  # type: ignore[arg-type]  # Django's File reads like one
        found.append((file_name(file.name or "", kind), kind))
    return found


def file_name(given: str, kind: Kind) -> str:
    """A name without path, control and direction characters, that ends as what the file is."""
    name = re.split(r"[/\\]", given)[-1]
    name = "".join(char for char in name if unicodedata.category(char)[0] != "C")
    name = re.sub(r"\s+", " ", name).strip(" .")
    stem, ending = name, ""
    for one in kind.endings:
        if name.lower().endswith(one):
            stem, ending = name[: -len(one)], name[-len(one) :]
    return (stem.strip(" .") or "file")[:_NAME_CHARS] + (ending or kind.endings[0])


def store(
    alert: RiskAlert, action: AlertAction, officer: User, files: Sequence[File], kinds: Sequence[tuple[str, Kind]]
) -> list[AlertAttachment]:
    """The rows, the bytes and an audit row each, in the caller's transaction. Cost: 1 INSERT for each CHUNK.

    Errors: CUSTOMER_ERASED; ATTACHMENT_TOO_LARGE on an alert with MOST_ON_ALERT.
    """
    if not files:
        return []
    if AlertAttachment.objects.filter(alert=alert).count() + len(files) > MOST_ON_ALERT:
        raise DomainError("ATTACHMENT_TOO_LARGE", f"an alert has at most {MOST_ON_ALERT} files")
    rows = [_store_one(alert, action, officer, file, *kind) for file, kind in zip(files, kinds, strict=True)]
    if alert.customer_id:
        refuse_erased(alert.tenant, alert.customer_id)
    return rows


def _store_one(
    alert: RiskAlert, action: AlertAction, officer: User, file: File, name: str, kind: Kind
) -> AlertAttachment:
    digest, size = hashlib.sha256(), 0
    row = AlertAttachment(
        tenant=alert.tenant, alert=alert, action=action, file_name=name, media_type=kind.media_type, size=0,
        sha256="", added_by=officer, added_at=action.at,
    )  # fmt: skip
    file.seek(0)
    while piece := file.read(CHUNK):
        digest.update(piece)
        size += len(piece)
    row.size, row.sha256 = size, digest.hexdigest()
    row.save(force_insert=True)
    file.seek(0)
    number = 0
    while piece := file.read(CHUNK):
        AttachmentChunk.objects.create(attachment=row, number=number, data=piece)
        number += 1
    record(
        tenant=alert.tenant,
        event_type=EventType.DATA_IMPORT,
        decision=Decision.COMPLETED,
        actor_type=ActorType.STAFF,
        actor_id=officer.get_username(),
        object_type="alert_attachment",
        object_id=row.pk,
        input_summary={"alert_id": alert.pk, "sha256": row.sha256, "bytes": size, "type": kind.media_type},
    )
    return row


def may_open(person: User) -> bool:
    """Whoever sees customers in clear: what is in a file is not masked."""
    return may(person, UNMASK) and may(person, VIEW)


def opened(*, alert_id: str, attachment_id: str, person: User) -> tuple[AlertAttachment, IO[bytes]]:
    """A file of the alert as it was taken in, its bytes checked against its SHA-256; who opened it is on the record
    before they are given.

    Memory: 2 MiB, beyond that a temporary file that has no name. Cost: a query for each CHUNK, and 1 INSERT.
    Errors: FORBIDDEN (one audit row); ALERT_NOT_FOUND, ATTACHMENT_NOT_FOUND; ATTACHMENT_ERASED; ATTACHMENT_DAMAGED
    where the bytes are not those that were stored: none of them are given (one audit row).
    """
    tenant = tenant_of(person)
    if not may_open(person):
        record_refusal(
            person, action="open_attachment", permission=UNMASK, object_type="alert_attachment",
            object_id=attachment_id,
        )  # fmt: skip
        raise DomainError("FORBIDDEN", f"to open files of alerts needs the permission {UNMASK}")
    row = (
        AlertAttachment.objects.filter(tenant=tenant, pk=attachment_id, alert_id=alert_id, alert__tenant=tenant)
        .exclude(alert__alert_type=AlertType.DATA_QUALITY)
        .first()
    )
    if row is None:
        raise DomainError("ATTACHMENT_NOT_FOUND", "no such file of this alert")
    if row.erased_at is not None:
        raise DomainError("ATTACHMENT_ERASED", "the file was erased with its customer's data")
    spool: IO[bytes] = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - the answer closes it
    digest, size, number = hashlib.sha256(), 0, 0
    while True:
        piece = AttachmentChunk.objects.filter(attachment=row, number=number).values_list("data", flat=True).first()
        if piece is None:
            break
        data = bytes(piece)
        digest.update(data)
        size += len(data)
        spool.write(data)
        number += 1
    if digest.hexdigest() != row.sha256 or size != row.size:
        spool.close()
        logger.error("attachment %s is not what was stored: its SHA-256 differs", row.pk)
        record(
            tenant=tenant,
            event_type=EventType.EVIDENCE_EXPORTED,
            decision=Decision.REFUSED,
            actor_type=ActorType.STAFF,
            actor_id=person.get_username(),
            object_type="alert_attachment",
            object_id=row.pk,
            code="ATTACHMENT_DAMAGED",
            input_summary={"alert_id": alert_id, "sha256": row.sha256, "found": digest.hexdigest(), "bytes": size},
        )
        raise DomainError("ATTACHMENT_DAMAGED", "the file is not what was stored; it is not given out")
    record(
        tenant=tenant,
        event_type=EventType.EVIDENCE_EXPORTED,
        decision=Decision.VIEWED,
        actor_type=ActorType.STAFF,
        actor_id=person.get_username(),
        object_type="alert_attachment",
        object_id=row.pk,
        input_summary={"alert_id": alert_id, "sha256": row.sha256},
    )
    spool.seek(0)
    return row, spool
