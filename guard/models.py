"""Re-exports, so that Django finds the tables of the rooms."""

from guard.access.models import AgentPrincipal
from guard.audit.models import AuditLog

__all__ = ["AgentPrincipal", "AuditLog"]
