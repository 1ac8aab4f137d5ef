"""One error for everything a caller can be told. `docs/errors.md` is generated from `CATALOGUE`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class ErrorKind(NamedTuple):
    status: int
    meaning: str


# Codes are contract: clients branch on them. Add, never rename.
CATALOGUE: dict[str, ErrorKind] = {
    "INVALID_JSON": ErrorKind(400, "the body is not JSON, or not UTF-8"),
    "UNAUTHENTICATED": ErrorKind(401, "no usable key: missing, unknown or malformed"),
    "KEY_EXPIRED": ErrorKind(401, "the key was valid and has expired; issue a new one"),
    "KEY_REVOKED": ErrorKind(401, "the key has been revoked; issue a new one"),
    "TOKEN_EXPIRED": ErrorKind(401, "the token's time is over; refresh it, or exchange the key again"),
    "TOKEN_REVOKED": ErrorKind(401, "the token has been revoked; exchange the key again"),
    "TOKEN_REUSED": ErrorKind(401, "the refresh token was used before; all tokens that came of it are revoked"),
    "AUTH_403_SCOPE": ErrorKind(403, "this agent may not do this, whoever it acts for"),
    "NOT_OWNER": ErrorKind(403, "the session or customer belongs to someone else"),
    "NOT_ASSIGNED": ErrorKind(403, "the advisor has no current assignment of this customer"),
    "FORBIDDEN": ErrorKind(403, "this person's role does not allow the action"),
    "ACTOR_BLOCKED": ErrorKind(403, "the actor is blocked for a time"),
    "AGENT_PAUSED": ErrorKind(403, "an officer has paused this agent for the tenant"),
    "BUDGET_EXCEEDED": ErrorKind(402, "the tenant's budget of the month does not cover it"),
    "NOT_FOUND": ErrorKind(404, "no such route, or no such thing"),
    "SESSION_NOT_FOUND": ErrorKind(404, "no such session; open it with POST /sessions"),
    "SESSION_DELETED": ErrorKind(410, "the session was deleted"),
    "CUSTOMER_ERASED": ErrorKind(410, "the customer (or the tenant) was erased; nothing is written any more"),
    "PROFILE_NOT_FOUND": ErrorKind(404, "no profile of this customer yet"),
    "VERSION_NOT_FOUND": ErrorKind(404, "the profile has no version of this number"),
    "HISTORY_STARTS_LATER": ErrorKind(404, "the profile's history begins later; see earliest"),
    "ALERT_NOT_FOUND": ErrorKind(404, "no such alert in this tenant"),
    "ATTACHMENT_NOT_FOUND": ErrorKind(404, "no such file of this alert"),
    "ATTACHMENT_ERASED": ErrorKind(410, "the file was erased with its customer's data; its SHA-256 stays"),
    "ATTACHMENT_TOO_LARGE": ErrorKind(413, "the files are larger, or more, than are kept with a note or an alert"),
    "ATTACHMENT_TYPE": ErrorKind(422, "what is in the file is of no kind that is taken"),
    "ATTACHMENT_DAMAGED": ErrorKind(500, "the stored bytes are not those of the file's SHA-256; none are given out"),
    "ALERT_DAMAGED": ErrorKind(
        500, "a stored row of the alert, or of its findings, cannot be read; it is left as it is"
    ),
    "QUESTION_NOT_FOUND": ErrorKind(404, "no such request for information of this alert"),
    "RULE_NOT_FOUND": ErrorKind(404, "no such rule, or no such version of it in this tenant"),
    "TRADE_NOT_FOUND": ErrorKind(404, "no such trade in the core system"),
    "METHOD_NOT_ALLOWED": ErrorKind(405, "the route exists, the method does not"),
    "ENTRY_CONFLICT": ErrorKind(409, "this entry_id exists in the session with other content"),
    "SESSION_CONFLICT": ErrorKind(409, "the session id exists with another customer"),
    "ENTRY_NOT_FOUND": ErrorKind(404, "no such entry in the session's tree"),
    "EMPTY_SESSION": ErrorKind(409, "the session has no entry to go on from"),
    "FORK_TOO_DEEP": ErrorKind(409, "forks of forks share too many sessions; fork from an earlier one"),
    "SESSION_LOCKED": ErrorKind(409, "somebody else holds the session's lock"),
    "LOCK_HELD": ErrorKind(409, "somebody else holds the lock"),
    "LOCK_LOST": ErrorKind(409, "the lock was lost while it was held; what was done meanwhile may clash"),
    "LEASE_LOST": ErrorKind(409, "the admission's time was over, or somebody else has it; stop the work"),
    "STALE_FENCE": ErrorKind(409, "a later holder of the session has written; nothing was written"),
    "RUN_ACTIVE": ErrorKind(409, "another run of the session is active"),
    "RUN_TAKEN": ErrorKind(409, "the run id is at work for another actor or session"),
    "ALREADY_SETTLED": ErrorKind(409, "the admission was settled with another amount"),
    "LEGAL_HOLD": ErrorKind(409, "a legal hold is in force; nothing of the customer is erased until it is released"),
    "VERSION_CONFLICT": ErrorKind(409, "it changed since the version you named; read it again"),
    "ALERT_CONFLICT": ErrorKind(409, "another officer acted on this alert first"),
    "KEY_ROTATED": ErrorKind(409, "another key has taken this one's place already; rotate that one"),
    "DEAD_LETTER_CONFLICT": ErrorKind(409, "the dead letter was decided already, or its reason still stands"),
    "FOUR_EYES": ErrorKind(403, "who proposed a disposition cannot approve it"),
    "INVALID_TRANSITION": ErrorKind(409, "the alert's status does not allow this action"),
    "IDEMPOTENCY_IN_FLIGHT": ErrorKind(409, "the request with this Idempotency-Key is still at work; try again"),
    "IDEMPOTENCY_ANSWER_GONE": ErrorKind(409, "the work of this Idempotency-Key was done; its answer was not kept"),
    "NEEDS_CONFIRMED_ALERT": ErrorKind(409, "a restriction is added, and no alert of the customer is confirmed"),
    "DRAFT_NOT_FOUND": ErrorKind(404, "no such draft in this tenant"),
    "DRAFT_OWN_REVIEW": ErrorKind(403, "who wrote the draft cannot review it"),
    "RULE_OWN_VERSION": ErrorKind(403, "who has set figures of a rule's version cannot activate it"),
    "RULE_STATUS": ErrorKind(409, "the version's status does not allow this step"),
    "RULE_UNCHANGED": ErrorKind(409, "nothing would differ from the figures that are there"),
    "DRAFT_STATUS": ErrorKind(409, "the draft's review status does not allow this step; see `review_status`"),
    "DRAFT_HASH_MISMATCH": ErrorKind(409, "that is not the content that was submitted or approved"),
    "DRAFT_WORDS_REJECTED": ErrorKind(409, "these words were rejected in this draft; submit others"),
    "DRAFT_EXPIRED": ErrorKind(409, "the draft waited too long and has expired; write a new one"),
    "SQL_INVALID": ErrorKind(422, "the statement cannot be understood"),
    "SQL_NOT_ONE_SELECT": ErrorKind(422, "the text is anything but exactly one SELECT (or WITH … SELECT)"),
    "SQL_FORBIDDEN": ErrorKind(403, "the statement has a part that analysts' statements may not have"),
    "SQL_UNKNOWN_NAME": ErrorKind(422, "a table or column is not among those that analysts may read"),
    "SQL_PERSONAL_COLUMN": ErrorKind(403, "the statement reaches a personal column, and the analyst has no grant"),
    "SQL_SINGLE_PERSON": ErrorKind(403, "the answer's rows would be single customers'; aggregate, or ask for a grant"),
    "SQL_TOO_COMPLEX": ErrorKind(422, "the statement is too long, too deep, or joins too many tables"),
    "SQL_TIMEOUT": ErrorKind(504, "the statement did not end within its time and was stopped"),
    "SQL_RESULT_TOO_LARGE": ErrorKind(413, "the rows are larger than one answer may be; select less"),
    "SQL_BUSY": ErrorKind(429, "as many statements of analysts are at work as may be; see retry_after"),
    "SQL_FAILED": ErrorKind(422, "the database did not run the statement"),
    "LENGTH_REQUIRED": ErrorKind(411, "this server takes no body in chunks; send it with Content-Length"),
    "BODY_TOO_LARGE": ErrorKind(413, "the body is over the limit"),
    "MESSAGE_TOO_LARGE": ErrorKind(413, "one message is over 8 MiB"),
    "INVALID_ID": ErrorKind(422, "an identifier has characters or a length that are not allowed"),
    "INVALID_REQUEST": ErrorKind(422, "a field is missing, unknown, or has a wrong value"),
    "IDEMPOTENCY_KEY_REUSED": ErrorKind(422, "this Idempotency-Key was used with another request"),
    "EMPTY_BATCH": ErrorKind(422, "`messages` is empty; send at least one"),
    "BATCH_TOO_LARGE": ErrorKind(422, "too many messages in one batch"),
    "CORE_READ_ONLY": ErrorKind(403, "the core system is connected read-only and accepts no writes"),
    "RATE_LIMITED": ErrorKind(429, "too many calls in a window of time; see limit and retry_after"),
    "QUOTA_EXCEEDED": ErrorKind(429, "the actor's AI calls of the business day are used up"),
    "TOO_MANY_RUNNING": ErrorKind(429, "too many calls are running; end one, or wait for its lease"),
    "VERSION_DAMAGED": ErrorKind(500, "a kept version is not what was written then; nothing of it is shown"),
    "INTERNAL": ErrorKind(500, "a fault of ours; the trace id finds it in the log"),
    "REDIS_UNAVAILABLE": ErrorKind(503, "Redis is away and this operation cannot do without it"),
    "BACKLOG_FULL": ErrorKind(503, "too many messages wait for the database; nothing was written, try again later"),
    "CORE_UNAVAILABLE": ErrorKind(503, "the core system does not answer, or too slowly; try again later"),
    "DATABASE_UNAVAILABLE": ErrorKind(503, "the database is away; nothing was written, try again"),
}


class DomainError(Exception):
    """What a service raises when it refuses. `detail` is a sentence for people, `extra` is for programs.

    Neither may hold customer data or secrets beyond what the caller itself sent.
    """

    def __init__(self, code: str, detail: str = "", **extra: Any) -> None:
        kind = CATALOGUE[code]
        self.code = code
        self.status = kind.status
        self.detail = detail or kind.meaning
        self.extra = extra
        super().__init__(f"{code}: {self.detail}")

    def problem(self, trace_id: str = "") -> dict[str, Any]:
        """The body of an `application/problem+json` answer."""
        body: dict[str, Any] = {
            "type": f"urn:xinghuo:error:{self.code}",
            "title": CATALOGUE[self.code].meaning,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
        }
        if trace_id:
            body["trace_id"] = trace_id
        return {**body, **self.extra}


def invalid_request(faults: Iterable[Mapping[str, Any]]) -> DomainError:
    """INVALID_REQUEST for what pydantic found wrong.

    Names and reasons only: what the caller sent may be a customer's words and goes into no answer and no log.
    """
    told = [
        {
            "field": ".".join(str(part) for part in fault.get("loc", ()) if part != "body"),
            "reason": fault.get("msg", ""),
        }
        for fault in faults
    ]
    first = told[0] if told else {"field": "body", "reason": "is not valid"}
    return DomainError("INVALID_REQUEST", f"{first['field'] or 'body'}: {first['reason']}", errors=told[:20])
