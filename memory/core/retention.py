"""How long this room's rows are kept."""

from config.base.retention import AML, SECURITIES_LAW, kept, passing, register
from memory.core.models import FACT_MODELS, CoreChange, CoreImport

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
    kept(CoreImport, "when a tenant's facts were last written, a row a tenant", "the importers' lock"),
)
