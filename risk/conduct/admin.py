"""The table of sales campaigns in the console."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from risk.calendar.tables import EditedTable
from risk.conduct import campaigns
from risk.conduct.models import Campaign


@admin.register(Campaign)
class CampaignAdmin(EditedTable):
    list_display = ("product_id", "starts_on", "ends_on", "name")
    exact_search = ("product_id",)
    permission = campaigns.CHANGE
    by_role = True

    def save_row(self, row: Any, by: Any) -> None:
        campaigns.save_campaign(campaign=row, by=by)

    def delete_row(self, row: Any, by: Any) -> None:
        campaigns.delete_campaign(campaign=row, by=by)
