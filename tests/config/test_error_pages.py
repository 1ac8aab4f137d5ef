"""Refusals and failures wear the console's clothes, in both languages, and need nothing that may be away."""

from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.test import Client, RequestFactory
from django.utils.translation import override
from django.views import csrf, defaults

HEADLINES = {
    400: ("This request cannot be read", "无法读取该请求"),
    403: ("You may not do this", "您无权进行此操作"),
    404: ("There is no such page", "没有这个页面"),
    500: ("Something went wrong here", "系统出现错误"),
}


def render(status: int) -> str:
    request = RequestFactory().get("/admin/")
    answer = {
        400: lambda: defaults.bad_request(request, Exception()),
        403: lambda: defaults.permission_denied(request, PermissionDenied()),
        404: lambda: defaults.page_not_found(request, Http404()),
        500: lambda: defaults.server_error(request),
    }[status]()
    assert answer.status_code == status
    return answer.content.decode()


@pytest.mark.parametrize("status", HEADLINES)
@pytest.mark.parametrize(("language", "place"), [("en", 0), ("zh-hans", 1)])
def test_a_page_without_a_database_in_both_languages(status: int, language: str, place: int) -> None:
    """No mark `django_db`: a query would fail the test."""
    with override(language):
        text = render(status)
    assert HEADLINES[status][place] in text
    assert f'lang="{language}"' in text
    assert "xinghuo/console" in text


def test_a_form_without_its_token_is_told_what_to_do() -> None:
    request = RequestFactory().post("/admin/login/")
    answer = csrf.csrf_failure(request, reason="CSRF cookie not set.")
    assert answer.status_code == 403
    assert "The page was open for too long" in answer.content.decode()


@pytest.mark.django_db
def test_an_address_that_is_not_there_follows_the_browsers_language() -> None:
    client = Client()
    client.cookies["django_language"] = "zh-hans"
    answer = client.get("/nowhere/")
    assert answer.status_code == 404
    assert "没有这个页面" in answer.content.decode()


@pytest.mark.django_db
def test_a_login_whose_next_is_refused_leads_to_the_overview() -> None:
    from django.contrib.auth.models import User

    User.objects.create_user("lin", password="correct horse", is_staff=True)
    for next_page in ("https://evil.example/", "//evil.example", "javascript:alert(1)", ""):
        client = Client()
        data = {"username": "lin", "password": "correct horse", "next": next_page}
        answer = client.post(f"/admin/login/?next={next_page}", data)
        assert (answer.status_code, answer["Location"]) == (302, "/admin/"), next_page
        assert client.get(answer["Location"]).status_code == 200
