"""How long this room's rows are kept."""

from config.base.retention import Retention, kept, register
from guard import pruning
from guard.access.models import AgentPrincipal, LoginCount, RevokedToken, StaffMember, TokenFamily

HOUR = "an hour after its end"
register(
    Retention(
        AgentPrincipal._meta.db_table,
        "digests of agents' keys",
        "who had a key is asked long after it was revoked; who gave and took it is in the audit log for good",
        setting="GUARD_HISTORY_DAYS",
        since="revoked, or expired",
        held_back="a key that is in force",
        sweep=pruning.prune_principals,
    ),
    Retention(
        TokenFamily._meta.db_table,
        "families of access tokens, and the tokens that were revoked (`revoked_token`)",
        "nothing can be done with a token that is over",
        until=HOUR,
        sweep=pruning.PRUNERS["tokens"],
    ),
    Retention(RevokedToken._meta.db_table, "revoked tokens", "as `token_family`", until=HOUR),
    Retention(
        LoginCount._meta.db_table,
        "counts of failed logins",
        "the failures themselves are in the audit log",
        until=HOUR,
        sweep=pruning.PRUNERS["logins"],
    ),
    kept(StaffMember, "the tenant of a person of the console", "part of the account", until="goes with the account"),
)
