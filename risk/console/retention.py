"""How long this room's rows are kept."""

from config.base.retention import kept, register
from risk.console.models import SavedView

register(
    kept(
        SavedView, "views of the queue that people have saved", "their owners' choice", until="their owner removes it"
    ),
)
