"""How long this room's rows are kept."""

from config.base.retention import kept, register
from risk.calendar.models import Holiday

register(kept(Holiday, "holidays and days worked in return", "findings of that time are judged by them again"))
