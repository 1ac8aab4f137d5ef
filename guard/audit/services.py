"""The two doors into the audit log: `record` for decisions, `observe` for observations.

Neither takes a lock or waits for the sealer: each is one INSERT.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction

from config.base.clock import rfc3339
from config.base.db import insert_all
from config.base.errors import DomainError
from config.base.fields import canonical_json
from config.base.redact import redact
from config.base.redis import RedisUnavailable
from config.base.trace import current_trace_id
from guard.audit import links, losses, pseudonyms, told
from guard.audit.canonical import sign_row
from guard.audit.models import OBSERVATIONS, VOCABULARY, ActorType, AuditLog, Decision, EventType

logger = logging.getLogger(__name__)

MAX_SUMMARY_BYTES = 2048
LOST_CODE = "OBSERVATIONS_LOST"

# What RISK-008 and the console look for: kept even where the rest of a summary is too large.
_KEPT = ("code", "action", "target", "customer_id", "trade_id", "product_id")
_KEPT_BYTES = 200

# Words of ours, which are no customer's even where one is called so.
_OWN_WORDS = frozenset({"code", "action", "permission", "fields", "columns"})
# Whose object_id is a customer's.
_CUSTOMER_OBJECTS = frozenset({"profile_l1", "profile_l2", "profile_l3", "advisor_snapshot", "core_customer"})
_CUSTOMER_AGENT = "customer"
_OTHER_CUSTOMER = ("actor", _CUSTOMER_AGENT)  # whom a customer agent's key may not speak for
_ACTOR = "actor"  # who is blocked, or may not be spoken for: perhaps a customer


class RowRefused(DomainError, DatabaseError):
    """The audit log did not take a row: 503 DATABASE_UNAVAILABLE, and what it would have told of is not done.

    Of a database that answers: a trigger of somebody's, a value that does not fit, ids that are used up. One that is
    away, or gave up on a lock, raises OperationalError as everywhere, which ends in the same answer.
    """

    def __init__(self) -> None:
        super().__init__("DATABASE_UNAVAILABLE", "the audit log takes no rows; nothing was done, try again later")


def record(
    *,
    tenant: str,
    event_type: str,
    decision: str,
    actor_type: str = ActorType.SYSTEM,
    actor_id: str,
    on_behalf_of: str = "",
    agent: str = "",
    object_type: str = "",
    object_id: str = "",
    code: str = "",
    risk_score: int | None = None,
    trace_id: str | None = None,
    input_summary: Mapping[str, Any] | None = None,
    customer_id: str = "",
    customers: Iterable[str] = (),
) -> AuditLog:
    """Inserts one row, in the caller's transaction: if the row cannot be written, the decision does not happen.

    Customers' ids go in as they are and are kept as pseudonyms, wherever in the row they stand. Known as customers'
    are: an actor of type customer, what a customer agent acts for, the object of a profile, and
    `input_summary.customer_id`; any other the caller names.

    customer_id: the customer that the row is about, where none of these says it; found again by `customer`.
    customers: ids of others that may stand in the row.
    input_summary: what stands in it as `reason`, `text` or `note` is somebody's sentence, and loses customers' ids.
        JSON, at most 2 KB in its canonical spelling; a larger one is replaced by its size and the fields
        of _KEPT, never cut in the middle. What looks like an agent key is hidden.
    Cost: 1 INSERT; of a customer whom this process has not met for 5 s a query more, of a new one 2; of a sentence
    with numbers in it what told.customers_among costs.
    Errors: RowRefused (503), OperationalError, InterfaceError: no row; the caller's transaction must end with it.
    ValueError for a word outside the vocabulary, an actor type that does not exist, or a score outside 0 to 100
    (faults of the caller's code).
    """
    row = _signed(
        {},
        tenant=tenant,
        event_type=event_type,
        decision=decision,
        actor_type=actor_type,
        actor_id=actor_id,
        on_behalf_of=on_behalf_of,
        agent=agent,
        object_type=object_type,
        object_id=object_id,
        code=code,
        risk_score=risk_score,
        trace_id=trace_id,
        input_summary=input_summary,
        customer_id=customer_id,
        customers=customers,
    )
    with _told_when_refused():
        row.save(force_insert=True)
    # Not before: a row that is rolled back must not be named by later ones.
    transaction.on_commit(partial(links.committed, row.pk, row.mac, row.link))
    return row


def record_all(entries: Sequence[Mapping[str, Any]]) -> list[AuditLog]:
    """As `record`, for several rows at once, in their order: each entry holds what `record` takes.

    An entry may hold `at`, when it happened: for a made-up past (seed_demo), never for what is decided now.

    Cost: 1 INSERT for all where the database answers with the ids (MariaDB, SQLite), else 1 a row; each customer in
    them is looked up once, those that the rows are about in one query. Errors: as `record`; then none is written.
    """
    names: dict[tuple[str, str], str] = {}
    with _told_when_refused():
        for tenant in {entry["tenant"] for entry in entries}:
            about = {entry.get("customer_id", "") for entry in entries if entry["tenant"] == tenant} - {""}
            names |= {(tenant, one): name for one, name in pseudonyms.of_all(tenant, about).items()}
    rows = [_signed(names, **entry) for entry in entries]
    with _told_when_refused():
        insert_all(rows)
    transaction.on_commit(partial(_committed, rows))
    return rows


def _committed(rows: Sequence[AuditLog]) -> None:
    for row in rows:
        links.committed(row.pk, row.mac, row.link)


def _signed(
    met: dict[tuple[str, str], str],
    *,
    tenant: str,
    event_type: str,
    decision: str,
    actor_type: str = ActorType.SYSTEM,
    actor_id: str,
    on_behalf_of: str = "",
    agent: str = "",
    object_type: str = "",
    object_id: str = "",
    code: str = "",
    risk_score: int | None = None,
    trace_id: str | None = None,
    input_summary: Mapping[str, Any] | None = None,
    customer_id: str = "",
    customers: Iterable[str] = (),
    at: datetime | None = None,
) -> AuditLog:
    """The row, ready to be inserted. met: pseudonyms by tenant and customer that this transaction has looked up."""
    if decision not in VOCABULARY.get(event_type, frozenset()):
        raise ValueError(f"audit vocabulary has no {event_type}/{decision}")
    if actor_type not in ActorType.values:
        raise ValueError(f"audit vocabulary has no actor type {actor_type!r}")
    if risk_score is not None and not 0 <= risk_score <= 100:
        raise ValueError(f"a risk score is 0 to 100, not {risk_score}")
    summary = dict(input_summary or {})
    known = [
        customer_id,
        str(summary.get("customer_id") or ""),
        object_id if object_type in _CUSTOMER_OBJECTS or (object_type, agent) == _OTHER_CUSTOMER else "",
        on_behalf_of if agent == _CUSTOMER_AGENT else "",
        actor_id if actor_type == ActorType.CUSTOMER else "",
        *customers,
        object_id if object_type == _ACTOR else "",
    ]
    # Longest first, so that an id that is part of another does not take its place.
    with _told_when_refused():
        names = {}
        for one in sorted(filter(None, known), key=len, reverse=True):
            if (tenant, one) not in met:
                met[(tenant, one)] = pseudonyms.of(tenant, one)
            names[one] = met[(tenant, one)]
        summary = told.summary(tenant, summary, names)
    about = next(filter(None, known[:5]), "")
    row = AuditLog(
        tenant=tenant,
        event_type=event_type,
        decision=decision,
        actor_type=actor_type,
        actor_id=_actor(actor_type, actor_id, names)[:64],
        on_behalf_of=pseudonyms.renamed(on_behalf_of, names)[:64],
        agent=agent[:16],
        object_type=object_type,
        object_id=pseudonyms.renamed(object_id, names)[:64],
        code=code,
        risk_score=risk_score,
        trace_id=current_trace_id() if trace_id is None else trace_id,
        input_summary=_bounded(_renamed(summary, names) if names else summary),
        customer=names.get(about, ""),
        **({"at": at} if at is not None else {}),
    )
    row.link = links.next_link()
    row.mac = sign_row(row)
    return row


@contextmanager
def _told_when_refused() -> Iterator[None]:
    try:
        yield
    except OperationalError:
        raise  # whoever retries has to see which one it is
    except DatabaseError as error:
        # Its text may quote the row: the log gets type and number.
        number = error.args[0] if error.args and isinstance(error.args[0], int) else ""
        logger.error("audit: a row was refused: %s %s", type(error).__name__, number)
        raise RowRefused from error


def observe(*, event_type: str, decision: str, **fields: Any) -> AuditLog | None:
    """As `record`, for what is seen and not decided: if the row cannot be written, the observed work goes on.

    The loss is counted and told: an ERROR line, `xinghuo_audit_lost_observations`, readiness and doctor, and a row
    `audit_verify/failed` (OBSERVATIONS_LOST) as soon as the log takes rows again. None then.
    In a transaction of the caller's it has a savepoint of its own.
    Errors: ValueError for what is no observation (models.OBSERVATIONS), and as `record`; DatabaseError only where the
    caller's own transaction is lost with the row (deadlock, cut connection): going on would lose its earlier writes.
    """
    if decision not in OBSERVATIONS.get(event_type, frozenset()):
        raise ValueError(f"{event_type}/{decision} is a decision: use record(), or name it in OBSERVATIONS")
    inside = connection.in_atomic_block
    try:
        with transaction.atomic():
            row = record(event_type=event_type, decision=decision, **fields)
    except (DatabaseError, InterfaceError) as error:
        if inside and connection.needs_rollback:
            raise
        losses.count_loss(event_type, error)
        return None
    losses.save_losses()
    return row


def tell_losses() -> int:
    """One row that says how many observations were lost, by event and when; returns how many. The sealer calls it.

    Redis away: 0, and told later. Told twice where the process dies between row and count, never not at all.
    """
    losses.save_losses()
    try:
        found = losses.read_losses()
        if not found.untold:
            return 0
        record(
            tenant="default",
            event_type=EventType.AUDIT_VERIFY,
            decision=Decision.FAILED,
            actor_id="guard.audit.seal",
            object_type="audit_log",
            code=LOST_CODE,
            input_summary={
                "code": LOST_CODE,
                "lost": found.untold,
                "from": rfc3339(found.first_at) if found.first_at else "",
                "to": rfc3339(found.last_at) if found.last_at else "",
            },
        )
        losses.told(found.untold)
    except RedisUnavailable:
        return 0
    return sum(found.untold.values())


def _actor(actor_type: str, actor_id: str, names: Mapping[str, str]) -> str:
    """Officers and advisors keep their names, also where a customer has the same."""
    return names.get(actor_id, actor_id) if actor_type == ActorType.CUSTOMER else actor_id


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        return pseudonyms.renamed(value, names)
    if isinstance(value, Mapping):
        return {
            pseudonyms.renamed(str(name), names): one if name in _OWN_WORDS else _renamed(one, names)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_renamed(one, names) for one in value]
    return value


def _bounded(summary: Mapping[str, Any]) -> dict[str, Any]:
    text = redact(canonical_json(dict(summary)))
    size = len(text.encode("utf-8", "surrogatepass"))
    whole: dict[str, Any] = json.loads(text)
    if size <= MAX_SUMMARY_BYTES:
        return whole
    kept = {name: whole[name] for name in _KEPT if name in whole}
    small = {name: value for name, value in kept.items() if len(canonical_json(value).encode()) <= _KEPT_BYTES}
    return {"omitted_bytes": size, **small}
