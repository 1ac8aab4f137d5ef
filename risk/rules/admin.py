"""Versions of rules, to read."""

from __future__ import annotations

from django.contrib import admin

from guard.access.staff_admin import ReadOnlyAdmin
from risk.rules.models import RiskRule


@admin.register(RiskRule)
class RiskRuleAdmin(ReadOnlyAdmin):
    list_display = ("rule_id", "version", "status", "activated_by", "activated_at", "created_by", "created_at")
    list_select_related = ("activated_by", "created_by")
    list_filter = ("status",)
    exact_search = ("rule_id",)
    exclude = ("active_slot",)
