"""A write that is sent again with the same `Idempotency-Key` is done once, and answered alike.

A key is one actor's of one agent and tenant. The same key and the same request (method, path, query, conditions, body)
answers what was answered, marked `Idempotent-Replayed: true`; with another request it is 422, while the first is at
work 409. Kept for a day (IDEMPOTENCY_KEPT_SECONDS) is the answer of work that was done (2xx); a refusal and a fault
changed nothing, for services are one transaction each, and free the key. The holder of a key renews its lease while it
works; when it dies the key is free after IDEMPOTENCY_LEASE_SECONDS and the next call does the work anew, which the
services bear (entry ids, If-Match, session ids). The same holds where Redis is emptied.
Redis away: closed, within a tenth of a second, for who asks for once must not get twice. Away or slow only when the
work is done: its caller hears the answer, which is kept as soon as Redis takes it, while the key is still the
request's. Without the header nothing is asked of it.
"""

from guard.idempotency.records import Answer, Claim, begin, digest_of, register_subject_resolver

__all__ = ["Answer", "Claim", "begin", "digest_of", "register_subject_resolver"]
