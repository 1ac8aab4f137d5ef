"""How long this room's rows are kept."""

from config.base.retention import AML, SECURITIES_LAW, kept, passing, register
from memory.core.models import FACT_MODELS, CoreChange, CoreDigest, CoreImport, CoreRound

OWNER = (
    "the core system's own: it decides, and we read. Rules look back on all of them, on lots bought long ago too."
    f" {SECURITIES_LAW}. {AML}"
)
CORE = "until the core system removes it"
register(
    *(
        kept(model, f"the core system's {model.__name__.removeprefix('Core').lower()}s", OWNER, until=CORE)
        for model in FACT_MODELS
    ),
    passing(CoreChange, "marks of customers whose facts changed", "the scan that saw it is done"),
    kept(
        CoreDigest,
        "a hash of each customer's rows in an external core",
        "what the core's present rows are compared with; it holds nothing of them but the customer's id",
        until="the core has no row of the customer any more",
    ),
    kept(CoreRound, "how far the round over an external core has come, one row", "where the next look goes on"),
    kept(CoreImport, "when a tenant's facts were last written, a row a tenant", "the importers' lock"),
)
