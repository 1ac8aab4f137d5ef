"""Entries into MySQL: each once, whoever brings it and however often.

The drain, a committing append and an append past Redis all come through here. What settles every race is the two
unique keys of `agent_message`: (session, entry) and (session, number).
"""

from __future__ import annotations

import contextlib
import logging
import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from itertools import chain

from django.db import DatabaseError, DataError, IntegrityError, connection, transaction

from config.base.db import is_lock_conflict, retry_conflicts
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from memory.sessions.entries import Entry
from memory.sessions.gone import Strays, by_session, is_erased, refuse_strays
from memory.sessions.models import AgentMessage, MessageDeadLetter
from memory.sessions.numbering import note_repeats

logger = logging.getLogger(__name__)

Reason = MessageDeadLetter.Reason

# Text grows to at most twice its bytes in an SQL statement (quotes, backslashes and control characters are escaped),
# so a statement stays under 9 MiB: MariaDB's max_allowed_packet is 16 MiB by default.
STATEMENT_ROWS = 500
STATEMENT_BYTES = 4 * 1024 * 1024
PIECE_CHARS = 1024 * 1024  # 4 bytes each at most


@dataclass
class Outcome:
    """What became of each entry. numbers: entry id -> the number it has in MySQL, by session. erased: of sessions that
    were erased meanwhile; they are nowhere, and nobody buries them."""

    stored: list[Entry] = field(default_factory=list)
    known: list[Entry] = field(default_factory=list)
    dead: list[tuple[Entry, str]] = field(default_factory=list)
    numbers: dict[tuple[int, str], int] = field(default_factory=dict)
    erased: list[Entry] = field(default_factory=list)

    @property
    def settled(self) -> list[Entry]:
        return [*self.stored, *self.known, *self.erased, *(entry for entry, _ in self.dead)]


# The INSERT is written here: the ORM's takes five times the time of the rest of the drain. Numbers, times and names
# (identifiers, digests, words of ours) stand in the statement, for the driver takes longer to quote a name than the
# server to store it; text goes through the driver. A test compares the columns.
_NUMBERS = ("session_pk", "seq", "size", "created_at")
_NAMES = (
    "tenant", "agent", "session_id", "entry_id", "parent_entry_id", "entry_type", "role", "digest", "trace_id",
    "run_id",
)  # fmt: skip
_TEXTS = ("content", "payload")
_INSERT = f"INSERT INTO agent_message ({', '.join([*_NUMBERS, *_NAMES, *_TEXTS])}) VALUES "  # noqa: S608 - our own names
# What may stand between quotes without being quoted. Whoever got anything else past the checks in front of this table
# is given to the driver like a text.
_PLAIN = (string.ascii_letters + string.digits + "_.-").encode()


def _insert_rows(entries: Sequence[Entry]) -> None:
    names = [
        (e.tenant, e.agent, e.session_id, e.entry_id, e.parent, e.entry_type, e.role, e.digest, e.trace_id, "")
        for e in entries
    ]
    every_name = "".join(chain.from_iterable(names)).encode("utf-8", "replace")
    plain = not every_name.translate(None, _PLAIN)
    rows: list[str] = []
    texts: list[str] = []
    for entry, own in zip(entries, names, strict=True):
        if plain:
            quoted = "','".join(own)
            quoted = f"'{quoted}'"
        else:
            quoted = ",".join(["%s"] * len(own))
            texts += own
        texts.append(entry.content)
        payload = entry.stored_payload
        if payload is not None:
            texts.append(payload)
        created_at = str(entry.created_at.astimezone(UTC))[:-6]  # without +00:00
        rows.append(
            f"({entry.session_pk:d},{entry.seq:d},{entry.size:d},'{created_at}',{quoted},%s,"
            f"{'NULL' if payload is None else '%s'})"
        )
    with connection.cursor() as cursor:
        cursor.execute(_INSERT + ",".join(rows), texts)


def _statements(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    part: list[Entry] = []
    size = 0
    for entry in entries:
        if part and (len(part) >= STATEMENT_ROWS or size + entry.size > STATEMENT_BYTES):
            yield part
            part, size = [], 0
        part.append(entry)
        size += entry.size
    if part:
        yield part


def _add_text(table: str, pk: int, column: str, text: str) -> None:
    """Puts a text that is too large for one statement into a row, piece by piece."""
    with connection.cursor() as cursor:
        for start in range(0, len(text), PIECE_CHARS):
            cursor.execute(
                f"UPDATE {table} SET {column} = CONCAT(COALESCE({column}, ''), %s) WHERE id = %s",  # noqa: S608 - our own names
                [text[start : start + PIECE_CHARS], pk],
            )


def _insert_in_pieces(entry: Entry) -> None:
    row, content, payload = entry.row(), entry.content, entry.stored_payload
    row.content, row.payload = "", None
    row.save(force_insert=True)
    _add_text("agent_message", row.pk, "content", content)
    if payload is not None:
        _add_text("agent_message", row.pk, "payload", payload)


def insert_entries(entries: Sequence[Entry]) -> None:
    """Plain INSERTs, in the caller's transaction. Errors: IntegrityError when one is there already."""
    for part in _statements(entries):
        if len(part) == 1 and part[0].size > STATEMENT_BYTES and connection.vendor == "mysql":
            _insert_in_pieces(part[0])
        else:
            _insert_rows(part)


def existing(session_pk: int, entry_ids: Sequence[str]) -> dict[str, AgentMessage]:
    """Which of these entries MySQL has, without their content."""
    found = AgentMessage.objects.filter(session_row_id=session_pk, entry_id__in=entry_ids)
    return {row.entry_id: row for row in found.only("entry_id", "seq", "digest", "created_at", "session_row_id")}


def _one_of_each_session(entries: Sequence[Entry]) -> list[Entry]:
    return list({(entry.session_pk, entry.session_id): entry for entry in entries}.values())


def _with_session(entries: Sequence[Entry], outcome: Outcome) -> list[Entry]:
    """Those whose session is there; the others go into `outcome`. 1 query."""
    there, erased, unknown = by_session(entries)
    outcome.erased += erased
    outcome.dead += [(entry, Reason.NO_SESSION) for entry in unknown]
    return there


def _sort_out(entries: Sequence[Entry], outcome: Outcome) -> list[Entry]:
    """Those that MySQL neither has nor refuses; the others go into `outcome`."""
    fresh: list[Entry] = []
    by_session: dict[int, list[Entry]] = {}
    for entry in entries:
        by_session.setdefault(entry.session_pk, []).append(entry)
    for pk, group in by_session.items():
        have = {
            entry_id: (row.seq, row.digest)
            for entry_id, row in existing(pk, [entry.entry_id for entry in group]).items()
        }
        taken = dict(
            AgentMessage.objects.filter(session_row_id=pk, seq__in=[entry.seq for entry in group]).values_list(
                "seq", "entry_id"
            )
        )
        for entry in group:
            seq, digest = have.get(entry.entry_id, (None, ""))
            if seq is not None:
                if digest == entry.digest:
                    # The same message by another way (a repeat, a lost reply, a drain that died after its commit).
                    outcome.known.append(entry)
                    outcome.numbers[pk, entry.entry_id] = seq
                else:
                    outcome.dead.append((entry, Reason.ENTRY_TAKEN))
            elif taken.get(entry.seq, entry.entry_id) != entry.entry_id:
                outcome.dead.append((entry, Reason.SEQ_TAKEN))
            else:
                fresh.append(entry)
                have[entry.entry_id] = (entry.seq, entry.digest)
                taken[entry.seq] = entry.entry_id
    return fresh


def _store(entries: Sequence[Entry], outcome: Outcome) -> None:
    """Steps: 1. all at once, hoping that none is there; 2. sort out what is there and try the rest; 3. what still
    fails is halved until the entry that fails stands alone. Each try looks at the sessions after it has written and
    before it commits, so that nothing is left in one that is being erased (gone.py)."""
    if not entries:
        return
    fresh = list(entries)
    for attempt in range(4):
        try:

            def work() -> None:
                with transaction.atomic():
                    insert_entries(fresh)  # noqa: B023 - runs at once
                    refuse_strays(_one_of_each_session(fresh))  # noqa: B023

            retry_conflicts(work)
        except Strays:
            fresh = _with_session(fresh, outcome)
            if not fresh:
                return
        except IntegrityError:
            # Others may insert the same entries at this moment: look again, a few times.
            fresh = _sort_out(_with_session(fresh, outcome), outcome)
            if not fresh:
                return
        except DataError:
            break
        except DatabaseError as error:
            if is_lock_conflict(error) or len(fresh) == 1 or not _is_too_large(error):
                raise
            break
        else:
            outcome.stored.extend(fresh)
            for entry in fresh:
                outcome.numbers[entry.session_pk, entry.entry_id] = entry.seq
            return
        if attempt == 3:
            break
    if len(fresh) == 1:
        outcome.dead.append((fresh[0], Reason.REFUSED))
        return
    middle = len(fresh) // 2
    _store(fresh[:middle], outcome)
    _store(fresh[middle:], outcome)


def _is_too_large(error: DatabaseError) -> bool:
    return bool(error.args) and error.args[0] in {1153, 2006, 2013, 2020}


def persist(entries: Sequence[Entry]) -> Outcome:
    """Puts entries into MySQL, each once; in transactions of its own.

    Cost: 1 query for the sessions and 1 INSERT for up to 500 new entries of 4 MiB together; more only when some
    are there already. The caller writes the dead letters (`bury`) and acknowledges.
    Errors: OperationalError when the database is away: nothing or a part is written, trying again is harmless.
    """
    outcome = Outcome()
    _store(entries, outcome)
    note_repeats(
        [
            (entry, outcome.numbers[entry.session_pk, entry.entry_id])
            for entry in outcome.known
            if outcome.numbers[entry.session_pk, entry.entry_id] != entry.seq
        ]
    )
    return outcome


def bury(
    *,
    stream_id: str,
    reason: str,
    raw: str,
    tenant: str = "",
    session_id: str = "",
    entry_id: str = "",
    seq: int | None = None,
    detail: str = "",
) -> None:
    """One dead letter and its audit row, in one transaction; harmless to repeat. `raw` is text that can be encoded.

    Nothing of a session that was erased.
    """
    in_pieces = connection.vendor == "mysql" and len(raw) > PIECE_CHARS
    with contextlib.suppress(Strays), transaction.atomic():
        letter, made = MessageDeadLetter.objects.get_or_create(
            stream_id=stream_id,
            entry_id=entry_id,
            defaults={
                "tenant": tenant,
                "session_id": session_id,
                "seq": seq,
                "reason": reason,
                "detail": detail[:200],
                "raw": "" if in_pieces else raw,
            },
        )
        if made:
            if session_id and is_erased(tenant, session_id):
                raise Strays
            if in_pieces:
                _add_text("message_dead_letter", letter.pk, "raw", raw)
            record(
                tenant=tenant or "default",
                event_type=EventType.DEAD_LETTER,
                decision=Decision.MOVED,
                actor_type=ActorType.SYSTEM,
                actor_id="memory.sessions.drain",
                object_type="message",
                object_id=entry_id or stream_id,
                code=reason.upper(),
                input_summary={"session_id": session_id, "seq": seq, "stream_id": stream_id, "letter": letter.pk},
            )
            logger.error("dead letter: %s session=%s entry=%s seq=%s", reason, session_id, entry_id, seq)
