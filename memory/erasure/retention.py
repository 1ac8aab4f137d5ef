"""How long this room's rows are kept."""

from config.base.retention import kept, register
from memory.erasure.models import CustomerTombstone, ErasureReceipt, LegalHold

register(
    kept(CustomerTombstone, "keyed hashes of erased customers", "who was erased must not come back; it names nobody"),
    kept(LegalHold, "legal holds", "what was held, from when to when, and by whom; under a pseudonym after an erasure"),
    kept(
        ErasureReceipt,
        "what an erasure removed and kept",
        "proof that a right was honoured (PIPL art. 47); it names nobody",
    ),
)
