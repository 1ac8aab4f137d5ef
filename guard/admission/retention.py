"""How long this room's rows are kept."""

from config.base.retention import Retention, kept, register
from guard import pruning
from guard.admission.models import (
    ActorBlock,
    AdmissionLimit,
    AgentPause,
    BudgetLedger,
    BudgetMonth,
    Fence,
)

HISTORY = "a repeat counts within 30 days, the rest is for support; the audit log has the act for good"
register(
    Retention(
        ActorBlock._meta.db_table,
        "blocks of actors, and pauses of agents (`agent_pause`)",
        HISTORY,
        setting="GUARD_HISTORY_DAYS",
        since="ended",
        held_back="a block or pause that is in force",
        sweep=pruning.prune_blocks,
    ),
    Retention(AgentPause._meta.db_table, "pauses of agents", "as `actor_block`", setting="GUARD_HISTORY_DAYS"),
    Retention(
        AdmissionLimit._meta.db_table,
        "former versions of limits",
        "what was allowed then is asked by support; who changed it is in the audit log for good",
        setting="GUARD_HISTORY_DAYS",
        since="changed",
        held_back="the version in force",
        sweep=pruning.prune_limits,
    ),
    kept(
        BudgetLedger,
        "what calls cost",
        "an account without a gap: it takes INSERT only, enforced by triggers, and a month's sum is checked against it",
    ),
    kept(BudgetMonth, "sums of the ledger, a row a month and tenant", "part of `budget_ledger`"),
    kept(
        Fence,
        "fencing numbers of sessions",
        "a number must never be given twice",
        until="goes with its row of `agent_session`",
    ),
)
