"""Changes of the table of sales campaigns: row, audit row, and the advisors they concern marked, in one transaction."""

from __future__ import annotations

from datetime import date
from itertools import groupby

from django.db import transaction

from config.base.clock import business_day_bounds
from config.base.errors import DomainError
from config.base.ids import check_id
from guard.access.people import By, admit_staff
from guard.audit.selectors import conduct_times
from risk.calendar.services import tell_change
from risk.conduct.following import mark
from risk.conduct.models import Campaign, TradeRequest

CHANGE = "risk.change_campaign"


def save_campaign(*, campaign: Campaign, by: By) -> Campaign:
    """Adds or changes one. by: a person with CHANGE, of the tenant, by role; or the name of a command.

    Errors: FORBIDDEN (403, one audit row), INVALID_ID, INVALID_REQUEST.
    """
    name = _admit(campaign, by, "save")
    check_id("product_id", campaign.product_id)
    if campaign.ends_on < campaign.starts_on:
        raise DomainError("INVALID_REQUEST", "the last day lies before the first")
    with transaction.atomic():
        before = Campaign.objects.filter(tenant=campaign.tenant, pk=campaign.pk).first()
        campaign.save()
        _tell(campaign, by, name, "change" if before else "add")
        _mark(campaign.tenant, [campaign, *([before] if before else [])])
    return campaign


def delete_campaign(*, campaign: Campaign, by: By) -> None:
    """Takes one away: what it let pass is judged again. by, errors: as `save_campaign`."""
    name = _admit(campaign, by, "delete")
    with transaction.atomic():
        _tell(campaign, by, name, "delete")
        campaign.delete()
        _mark(campaign.tenant, [campaign])


def _admit(campaign: Campaign, by: By, action: str) -> str:
    check_id("tenant", campaign.tenant)
    return admit_staff(by, CHANGE, action=action, object_type="risk_campaign", tenant=campaign.tenant, by_role=True)


def _tell(campaign: Campaign, by: By, name: str, action: str) -> None:
    told = {"product_id": campaign.product_id, "from": campaign.starts_on.isoformat()}
    tell_change(campaign, by, name, {"action": action, **told, "to": campaign.ends_on.isoformat()})


def _mark(tenant: str, campaigns: list[Campaign]) -> None:
    """Every advisor who asked for trades on one of these days."""
    for campaign in campaigns:
        since, until = business_day_bounds(campaign.starts_on)[0], business_day_bounds(campaign.ends_on)[1]
        rows = TradeRequest.objects.filter(tenant=tenant, at__gte=since, at__lt=until)
        asked = rows.order_by("advisor_id", "at").values_list("advisor_id", "at")
        for advisor_id, group in groupby(asked, key=lambda row: row[0]):
            times = [at for _advisor, at in group]
            mark(tenant=tenant, advisor_id=advisor_id, since=times[0], until=times[-1])


def day_changed(tenant: str, day: date) -> None:
    """A day became worked, or is no longer: every advisor of whom something happened on it."""
    since, until = business_day_bounds(day)
    for advisor_id, first, last in conduct_times(tenant=tenant, since=since, until=until):
        mark(tenant=tenant, advisor_id=advisor_id, since=first, until=last)
