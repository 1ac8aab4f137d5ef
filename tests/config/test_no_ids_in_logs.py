"""Whatever goes wrong with a request, an id of a customer in its address comes into no record of any logger."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from celery.app.trace import build_tracer
from django.contrib.auth.models import User
from django.test import Client

from config.celery import app
from guard.access.services import issue_key
from memory.profiles import selectors

pytestmark = pytest.mark.django_db(transaction=True)

MARKED = "cust-zq7marker"


class Kept(logging.Handler):
    """Everything that a handler behind ours is given, as another program would print it."""

    def __init__(self) -> None:
        super().__init__(0)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        # `exc_text` is what a formatter before kept for those that follow.
        self.lines.append(f"{logging.Formatter().format(record)} {record.__dict__}")


@pytest.fixture
def log() -> Iterator[Kept]:
    kept, root = Kept(), logging.getLogger()
    level = root.level
    root.addHandler(kept)
    root.setLevel(logging.DEBUG)
    loggers = [logging.getLogger(name) for name in ("django.request", "django.server", "celery.app.trace")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)  # the stricter level is no part of what is shown here
    yield kept
    root.removeHandler(kept)
    root.setLevel(level)
    for logger, was in zip(loggers, before, strict=True):
        logger.setLevel(was)


def assert_silent(log: Kept, *, about: int = 1) -> None:
    assert len(log.lines) >= about
    assert not [line for line in log.lines if "zq7marker" in line]


def ask(path: str, method: str = "GET", body: str = "", actor: str = MARKED, **more: Any) -> int:
    headers = {"Authorization": f"Bearer {issue_key(agent='customer').key}", "X-Actor-Id": actor}
    answer = Client(raise_request_exception=False).generic(
        method, path, data=body, content_type="application/json", headers=headers, **more
    )
    return answer.status_code


def test_refused_and_broken_requests(log: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    root = f"/api/v1/profiles/l1/{MARKED}"
    assert ask(root) == 404
    assert ask(f"{root}?as_of={MARKED}") == 422
    assert ask(root, actor="cust-other") == 403
    assert ask(root, "PUT", f'{{"{MARKED}": 1') == 400
    assert ask(root, "DELETE") == 405
    assert ask(f"/api/v1/nothing/{MARKED}") == 404

    def broken(**_: Any) -> Any:
        raise RuntimeError(f"duplicate entry 'default-{MARKED}'")

    monkeypatch.setattr(selectors, "read_l1", broken)
    assert ask(root) == 500
    assert any("/api/v1/profiles/l1/<customer_id>" in line.replace("<str:", "<") for line in log.lines)
    assert_silent(log, about=5)


def test_an_outage(log: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    def away(**_: Any) -> Any:
        raise OperationalError(2003, f"while asking for {MARKED}")

    monkeypatch.setattr(selectors, "read_l3", away)
    assert ask(f"/api/v1/profiles/l3/{MARKED}") == 503
    assert_silent(log)


def test_pages_of_people(log: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    people = Client(raise_request_exception=False)
    people.force_login(User.objects.create_superuser("boss"))
    assert people.get(f"/admin/memory/customerprofilel1/{MARKED}/change/").status_code in (302, 404)
    assert people.get(f"/admin/nothing/{MARKED}/").status_code in (302, 404)
    assert people.get(f"/admin/{MARKED}", headers={"Host": MARKED + "."}).status_code == 400
    strict = Client(enforce_csrf_checks=True)
    assert strict.post(f"/admin/login/?next=/{MARKED}", {"username": MARKED}).status_code == 403

    from memory.profiles.admin import CustomerProfileL1Admin

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"duplicate entry 'default-{MARKED}'")

    monkeypatch.setattr(CustomerProfileL1Admin, "get_queryset", broken)
    assert people.get(f"/admin/memory/customerprofilel1/?q={MARKED}").status_code == 500
    assert_silent(log, about=2)


def test_work_of_the_worker_and_whatever_else_fails(log: Kept) -> None:
    @app.task(name="tests.fails")
    def fails(customer_id: str) -> None:
        raise ValueError(f"customer {customer_id}")

    build_tracer(fails.name, fails, app=app)("id-1", [MARKED], {"customer_id": MARKED}, {"id": "id-1"})
    try:
        raise KeyError(MARKED)
    except KeyError:
        logging.getLogger("memory.anything").exception("failed")
        logging.getLogger("uvicorn.error").exception("failed")
    assert any("tests.fails" in line for line in log.lines)
    assert any("KeyError" in line for line in log.lines)
    assert_silent(log, about=3)


def test_no_server_writes_a_line_for_each_request(log: Kept) -> None:
    for name in ("uvicorn.access", "gunicorn.access"):
        logging.getLogger(name).info('%s - "GET /api/v1/profiles/l1/%s"', "10.0.0.1", MARKED)
    logging.getLogger("django.server").warning('"GET /api/v1/profiles/l1/%s"', MARKED)
    assert_silent(log)
