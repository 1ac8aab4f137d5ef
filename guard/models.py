"""Re-exports, so that Django finds the tables of the rooms."""

from guard.access.models import AgentPrincipal, LoginCount, RevokedToken, StaffMember, TokenFamily
from guard.admission.models import ActorBlock, AdmissionLimit, AgentPause, BudgetLedger, BudgetMonth, Fence
from guard.audit.models import AuditLog, AuditSeal, CustomerPseudonym
from guard.locks.models import LockFence

__all__ = [
    "ActorBlock",
    "AdmissionLimit",
    "AgentPause",
    "AgentPrincipal",
    "AuditLog",
    "AuditSeal",
    "BudgetLedger",
    "BudgetMonth",
    "CustomerPseudonym",
    "Fence",
    "LockFence",
    "LoginCount",
    "RevokedToken",
    "StaffMember",
    "TokenFamily",
]
