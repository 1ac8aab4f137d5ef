"""Lists are filtered by what they offer: an address that asks for more would tell what is masked, letter by letter."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.test import Client

from guard.access.staff_admin import ReadOnlyAdmin
from tests.risk.console.make import make_client, make_person

pytestmark = pytest.mark.django_db

LISTS = {
    f"/admin/{model._meta.app_label}/{model._meta.model_name}/": table
    for model, table in admin.site._registry.items() if isinstance(table, ReadOnlyAdmin)
}  # fmt: skip
HOWS = ("contains", "icontains", "startswith", "istartswith", "endswith", "regex", "iregex", "gt", "gte", "lt", "lte",
        "in", "range", "iexact", "date", "length", "has_key")  # fmt: skip


@pytest.fixture
def client() -> Client:
    return make_client(make_person("root", superuser=True))


@pytest.mark.parametrize("address", LISTS)
def test_what_a_list_does_not_offer_is_a_sentence(address: str, client: Client, caplog: Any) -> None:
    table = LISTS[address]
    related = [one.name for one in table.model._meta.get_fields() if one.is_relation]
    names = [field.name for field in table.model._meta.concrete_fields]
    asked = [f"{name}__{how}" for name in names for how in HOWS]
    asked += [f"{name}__pk" for name in related] + [f"{name}__customer_id__startswith" for name in related]
    refused = [one for one in asked if table.lookup_allowed(one, "C")]
    assert refused == []
    for one in (f"{names[1]}__startswith", f"{names[-1]}__regex", "nothing__gte"):
        answer = client.get(address, {one: "C0"})
        assert (answer.status_code, "Traceback" in answer.content.decode()) == (400, False), one
        assert "filtered by what it offers" in answer.content.decode()
    assert "C0" not in caplog.text


@pytest.mark.parametrize("address", LISTS)
def test_what_it_offers_is_answered(address: str, client: Client) -> None:
    for name in LISTS[address].exact_search:
        assert client.get(address, {name: "C0"}).status_code == 200
        assert client.get(address, {f"{name}__exact": "C0"}).status_code == 200
    page = client.get(address)
    for spec in page.context["cl"].filter_specs:
        for choice in spec.choices(page.context["cl"]):
            assert client.get(address + choice["query_string"]).status_code == 200, choice
    assert client.get(address, {"q": "x", "o": "1"}).status_code == 200
