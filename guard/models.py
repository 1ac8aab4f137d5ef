"""Re-exports, so that Django finds the tables of the rooms."""

from guard.access.models import AgentPrincipal, StaffMember
from guard.audit.models import AuditLog
from guard.locks.models import LockFence

__all__ = ["AgentPrincipal", "AuditLog", "LockFence", "StaffMember"]
