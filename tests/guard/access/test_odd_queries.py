"""No page of the console falls over what stands in its address: an odd value is told in words, or counts as none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import URLPattern

from config.base.asked import moment, number
from guard.access.models import StaffMember
from guard.access.services import issue_key
from guard.audit.models import AuditLog
from memory.core.models import CoreCustomer, CoreTrade
from memory.erasure.holds import place_hold
from memory.sessions.models import AgentSession, MessageDeadLetter
from tests.memory.sessions.helpers import make_session
from tests.risk.console.make import make_alert, make_auditor, make_client, make_customer, make_officer, make_person

pytestmark = pytest.mark.django_db

# As they stand in the address, percent-encoded.
ODD: dict[str, str] = {
    name: quote_from_bytes(value if isinstance(value, bytes) else value.encode())
    for name, value in {
        "superscript two": "²", "arabic three": "٣", "arabic place": "٣-٣", "roman": "Ⅷ", "minus": "-1", "zero": "0",
        "a float": "1.5", "infinity": "1e999", "underscores": "1_0", "past 64 bits": "9223372036854775808",
        "huge": "9" * 400, "a huge place": "99999999999999999-999999999999999999", "a score": "9999999999999999~x",
        "first day": "0001-01-01", "last day": "9999-12-31", "last second": "9999-12-31T23:59:59-12:00",
        "first second": "0001-01-01T00:00:00+14:00", "no day": "2026-02-30", "a week": "2026-W48-1", "NUL": "\0",
        "NUL inside": "a\0b", "half a pair": b"\xed\xa0\x80", "no UTF-8": b"\xff\xfe", "emoji": "😀",
        "long": "x" * 10_000, "list": "[1,2", "many": "1,²,x", "quote": "' OR 1=1 --", "percent": "%",
        "newline": "1\n", "blank": " ",
    }.items()
}  # fmt: skip
OWN = {
    "guard_auditlog": "since until event decision actor_type__exact actor object code trace customer before q",
    "risk_riskalert": "tab type band q sort after id",
}
EVERYWHERE = "p o q all e id pk _popup _to_field _changelist_filters"
SKIPPED = {"logout", "view_on_site", "app_list"}


def pages() -> Iterator[tuple[str, str]]:
    for entry in admin.site.get_urls():
        found = [entry] if isinstance(entry, URLPattern) else entry.url_patterns
        place = "/admin/" if isinstance(entry, URLPattern) else f"/admin/{entry.pattern}"
        for page in found:
            if page.name and page.name not in SKIPPED:
                yield page.name, f"{place}{page.pattern}"


@pytest.fixture
def objects() -> dict[str, str]:
    make_customer("C00017")
    alert = make_alert("C00017")
    member = StaffMember.objects.create(user=make_person("someone"))
    make_session()
    letter = MessageDeadLetter.objects.create(tenant="default", stream_id="1-1", raw="{}", reason="refused")
    hold = place_hold(customer_id="C00017", by="legal", reason="a case")
    return {
        "risk_riskalert": alert.pk,
        "guard_agentprincipal": issue_key(agent="risk").principal.pk,
        "guard_auditlog": str(AuditLog.objects.values_list("pk", flat=True)[0]),
        "guard_staffmember": str(member.pk),
        "auth_user": str(member.user_id),  # type: ignore[attr-defined]
        "auth_group": str(Group.objects.values_list("pk", flat=True)[0]),
        "memory_messagedeadletter": str(letter.pk),
        "memory_legalhold": str(hold.pk),
        "memory_corecustomer": str(CoreCustomer.objects.values_list("pk", flat=True)[0]),
        "memory_coretrade": str(CoreTrade.objects.values_list("pk", flat=True)[0]),
        "memory_agentsession": str(AgentSession.objects.values_list("pk", flat=True)[0]),
    }


def filled(pattern: str, value: str) -> str:
    out, rest = "", pattern
    while "<" in rest:
        before, _, rest = rest.partition("<")
        kind, _, rest = rest.partition(">")
        out += before + ("csv" if kind == "str:kind" else value)
    return out + rest


def parameters(name: str) -> list[str]:
    kind = name.rpartition("_")[0]
    names = f"{EVERYWHERE} {OWN.get(kind, '')}".split()
    for model, table in admin.site._registry.items():
        if kind == f"{model._meta.app_label}_{model._meta.model_name}" and isinstance(table, admin.ModelAdmin):
            for one in table.list_filter:
                field = one[0] if isinstance(one, tuple) else one
                if isinstance(field, str):
                    names += [field, f"{field}__exact", f"{field}__isnull", f"{field}__isempty", f"{field}__gte"]
                else:
                    names.append(getattr(field, "parameter_name", "x"))
    return list(dict.fromkeys(names))


def status_of(client: Client, address: str) -> int | str:
    try:
        answer: Any = client.get(address)
        if answer.streaming:
            list(answer.streaming_content)
        return int(answer.status_code)
    except Exception as error:  # whatever it is, it would have been a 500
        return f"{type(error).__name__}: {error}"[:150]


def wrong(status: int | str) -> bool:
    return isinstance(status, str) or status >= 500


# Of what Django itself reads, each kind of value once.
FEW = ("superscript two", "past 64 bits", "first second")


def addresses(objects: dict[str, str]) -> Iterator[str]:
    for name, pattern in pages():
        kind = next((kind for kind in objects if name.startswith(f"{kind}_")), "")
        address = filled(pattern, objects.get(kind, "1"))
        if name.endswith(("_changelist", "_export", "_rows")):
            own = OWN.get(kind, "").split()
            for parameter in parameters(name):
                yield from (f"{address}?{parameter}={ODD[odd]}" for odd in (ODD if parameter in own else FEW))
        if "<" in pattern:
            yield from (filled(pattern, ODD[odd]) for odd in (*FEW, "huge", "NUL", "newline", "no UTF-8", "emoji"))
    for many in ("?" + "&".join(f"id={n}" for n in range(500)), "?q=a&q=b&q=%C2%B2", "?" + "&".join(["p=1"] * 300)):
        yield from (f"/admin/risk/riskalert/rows/{many}", f"{LOG}{many}", f"/admin/auth/user/{many}")


@pytest.mark.parametrize("who", ["root", "officer"])
def test_no_address_makes_a_page_fall(who: str, objects: dict[str, str]) -> None:
    """The officer sees the alerts as a superuser does not: what they may do is decided by role."""
    client = make_client(make_officer() if who == "officer" else make_person("root", superuser=True))
    fallen = {}
    for address in addresses(objects):
        if who == "officer" and not address.startswith(("/admin/risk/", "/admin/customers/")):
            continue
        status = status_of(client, address)
        if wrong(status):
            fallen[address[:150]] = status
    assert fallen == {}


LOG = "/admin/guard/auditlog/"


@pytest.mark.parametrize("query", ["q=%00", "since=%ED%A0%80", "actor=" + "x" * 10_000, "&".join(["id=1"] * 300)])
def test_what_is_nothing_to_ask_for_is_told_in_a_sentence(query: str) -> None:
    client = make_client(make_auditor())
    for page in (LOG, f"{LOG}export/csv/", "/admin/risk/riskalert/", "/admin/"):
        answer = client.get(f"{page}?{query}")
        assert answer.status_code == 400, page
        assert "The address " in answer.content.decode() or "A value in the address" in answer.content.decode()


def test_a_number_that_no_column_holds_is_told_or_finds_nothing() -> None:
    client = make_client(make_person("root", superuser=True))
    for page in ("auth/user/9223372036854775808/change/", "guard/staffmember/?pk=9223372036854775808"):
        answer = client.get(f"/admin/{page}")
        assert answer.status_code in (200, 302, 400), page
        if answer.status_code == 400:
            assert "beyond any that there is" in answer.content.decode()


@pytest.mark.parametrize(
    "day",
    ["9999-12-31", "0001-01-01", "1969-12-31", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00%2B14:00", "²", "x"],
)
@pytest.mark.parametrize("name", ["since", "until"])
def test_days_that_are_none_are_told_by_the_form_also_for_an_export(name: str, day: str) -> None:
    client = make_client(make_auditor())
    answer = client.get(f"{LOG}?{name}={day}")
    assert answer.status_code == 200
    assert "2026-11-30 08:15" in answer.content.decode()
    export = client.get(f"{LOG}export/csv/?{name}={day}", follow=True)
    assert export.redirect_chain
    assert "2026-11-30 08:15" in export.content.decode(), "the form says what was wrong"
    assert not AuditLog.objects.filter(event_type="evidence_exported").exists()


@pytest.mark.parametrize("text", ["²", "٣", "-1", "", " 1", "1_0", "1.0", "9223372036854775808", "9" * 5000])
def test_what_is_no_number(text: str) -> None:
    assert number(text) is None


def test_numbers_and_moments() -> None:
    assert [number(text) for text in ("0", "007", "9223372036854775807")] == [0, 7, 2**63 - 1]
    assert moment("9998-12-31", UTC) == datetime(9998, 12, 31, tzinfo=UTC)
    assert moment(" 2026-11-30T08:00+08:00 ", UTC) == datetime(2026, 11, 30, tzinfo=UTC)


def test_odd_forms_are_refused_in_words_too(objects: dict[str, str]) -> None:
    letter, draft = objects["memory_messagedeadletter"], "nope"
    root = make_client(make_person("root", superuser=True))
    for value in ("²", "9" * 5000, "-1", "\0"):
        for page, form in (
            (f"memory/messagedeadletter/{letter}/change/", {"retry": value}),
            ("memory/messagedeadletter/%C2%B2/change/", {"retry": "1"}),
            (f"memory/advisordraft/{draft}/approve/", {"version": value, "content_hash": value}),
            (f"risk/riskalert/{objects['risk_riskalert']}/claim/", {"version": value}),
            ("guard/actorblock/", {"action": "lift", "_selected_action": value}),
            ("guard/actorblock/add/", {"actor_id": value, "minutes": value, "reason": value}),
        ):
            assert root.post(f"/admin/{page}", form).status_code < 500, (page, value)
