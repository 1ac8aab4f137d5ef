"""How long this room's rows are kept."""

from config.base.retention import AML, SECURITIES_LAW, kept, register
from guard.audit.models import AuditLog, AuditSeal, CustomerPseudonym

register(
    kept(
        AuditLog,
        "every decision and observation; customers under pseudonyms",
        f"{SECURITIES_LAW}. It takes INSERT only, enforced by triggers, and each seal covers what came before: a row"
        " that is taken away is tampering. `manage.py audit_export` writes an archive that proves itself",
    ),
    kept(AuditSeal, "the seals of `audit_log`", "without them the log proves nothing"),
    kept(
        CustomerPseudonym,
        "the keys of customers' pseudonyms in `audit_log`",
        f"without its key a customer's rows cannot be told from others'. {AML}",
        until="until the customer is erased",
    ),
)
