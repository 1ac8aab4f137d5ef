"""What rules would find in advisors' conduct of the past. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from config.base.clock import business_date
from guard.audit.selectors import advisors_heard_of, conduct_span
from risk.calendar.selectors import work_calendar
from risk.conduct.reading import campaigns_of, conduct_of
from risk.conduct.services import patterns, pieces, widest
from risk.rules.engine import Rule
from risk.rules.hit import Hit


def advisors_of_past(*, tenant: str) -> list[str]:
    """Every advisor of whom the log tells something."""
    return [advisor_id for _tenant, advisor_id in advisors_heard_of(tenant=tenant)]


def conduct_findings(*, tenant: str, advisor_id: str, rules: Sequence[Rule]) -> Iterator[Hit]:
    """All that the rules find in an advisor's conduct, from the first row on.

    Cost: that of the conduct of each month (see conduct_of), and 2 queries for calendar and campaigns.
    """
    ends = conduct_span(tenant=tenant, advisor_id=advisor_id)
    if ends is None or not rules:
        return
    calendar, campaigns = work_calendar(tenant=tenant), campaigns_of(tenant=tenant)
    reach = widest([rule.params for rule in rules])
    for span in pieces([(business_date(ends[0]), business_date(ends[1]))]):
        material = conduct_of(
            tenant=tenant, advisor_id=advisor_id, span=span, params=reach, calendar=calendar, campaigns=campaigns
        )
        for rule in rules:
            yield from patterns(material, span, rule)
