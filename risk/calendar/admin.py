"""The table of holidays in the console."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from risk.calendar import services
from risk.calendar.models import Holiday
from risk.calendar.tables import EditedTable


@admin.register(Holiday)
class HolidayAdmin(EditedTable):
    list_display = ("day", "kind", "name")
    list_filter = ("kind",)
    date_hierarchy = "day"
    permission = services.CHANGE

    def save_row(self, row: Any, by: Any) -> None:
        services.save_holiday(holiday=row, by=by)

    def delete_row(self, row: Any, by: Any) -> None:
        services.delete_holiday(holiday=row, by=by)
