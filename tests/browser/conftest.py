"""A headless Chromium, and people who use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stack import LiveStack

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"no Chromium at {CHROMIUM}: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def people(live_stack: LiveStack) -> None:
    live_stack.staff("lin", "risk_officer", PASSWORD)
    live_stack.staff("zhou", "risk_officer", PASSWORD)
    live_stack.staff("meng", "risk_manager", PASSWORD)
    live_stack.staff("boss", "platform_admin", PASSWORD)
    live_stack.shell(
        "from django.contrib.auth.models import User\nUser.objects.filter(username='boss').update(is_superuser=True)"
    )


LogIn = Callable[..., Any]


@pytest.fixture
def log_in(chromium: Any, live_stack: LiveStack, people: None) -> Iterator[LogIn]:
    """`log_in("lin")`: a page of a browser profile of its own, logged in through the form, on the queue, live.

    Errors of scripts and of the console fail the test at its end.
    """
    contexts: list[Any] = []
    faults: list[str] = []

    def enter(name: str, *, language: str = "en", width: int = 1280) -> Any:
        context = chromium.new_context(viewport={"width": width, "height": 860}, base_url=live_stack.url)
        contexts.append(context)
        context.set_default_timeout(15_000)
        context.add_cookies(
            [{"name": "django_language", "value": "zh-hans" if language == "zh" else "en", "url": live_stack.url}]
        )
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(f"{name}: {error}"))
        page.on("console", lambda line: faults.append(line.text) if "Content Security Policy" in line.text else None)
        page.goto("/admin/login/?next=/admin/risk/riskalert/")
        page.fill("#id_username", name)
        page.fill("#id_password", PASSWORD)
        page.click("#login-form button[type=submit]")
        page.wait_for_selector("#feed-state[data-state=live]")
        return page

    yield enter
    for context in contexts:
        context.close()
    assert not faults, faults
