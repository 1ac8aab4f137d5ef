"""Re-exports, so that Django finds the tables of the rooms."""

from guard.access.models import AgentPrincipal, StaffMember
from guard.audit.models import AuditLog, AuditSeal, CustomerPseudonym

__all__ = ["AgentPrincipal", "AuditLog", "AuditSeal", "CustomerPseudonym", "StaffMember"]
