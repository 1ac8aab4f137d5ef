"""Logins to the console: five failures lock an account or an address, whatever becomes of Redis."""

from __future__ import annotations

import ipaddress
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import aauthenticate, authenticate
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, connections
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

from config.base import redis as base_redis
from config.base.clock import now
from config.base.network import ip_hex
from guard.access import logins
from guard.access.blacklist import REDIS_PATIENCE
from guard.access.models import LoginCount, StaffMember
from guard.audit.models import AuditLog
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)
LOGIN = "/admin/login/"
RIGHT, WRONG = "correct horse", "battery staple"


@pytest.fixture(autouse=True)
def account_first(settings: Any) -> None:
    settings.LOGIN_FAILURES_ADDRESS = 50  # the account's limit first


def make_staff(name: str = "lin", **more: Any) -> User:
    return User.objects.create(username=name, password=make_password(RIGHT), is_staff=True, **more)


def login(name: str = "lin", password: str = WRONG, *, address: str = "203.0.113.9", **headers: str) -> Any:
    return Client(REMOTE_ADDR=address).post(
        LOGIN, {"username": name, "password": password, "next": "/admin/"}, **headers
    )


def rows(decision: str = "") -> list[AuditLog]:
    found = AuditLog.objects.filter(event_type="authn").order_by("id")
    return list(found.filter(decision=decision) if decision else found)


def message(response: Any) -> str:
    text = response.content.decode()
    start = text.index('role="alert">') if 'role="alert">' in text else 0
    return text[start : text.index("</p>", start)]


def test_five_failures_lock_the_account_and_the_right_password_does_not_open_it() -> None:
    make_staff()
    for _ in range(5):
        assert login().status_code == 200
    locked = login(password=RIGHT)
    assert locked.status_code == 429
    assert 890 <= int(locked["Retry-After"]) <= 901
    assert "Too many failed logins. Try again in 15 minutes." in locked.content.decode()
    assert login(password=RIGHT, address="198.51.100.7").status_code == 429  # from anywhere
    assert [row.decision for row in rows()] == ["failure"] * 5 + ["locked"]
    assert {row.actor_id for row in rows()} == {"lin"}


def test_four_failures_and_a_success_begin_anew() -> None:
    make_staff()
    for _ in range(3):
        for _ in range(4):
            login()
        assert login(password=RIGHT).status_code == 302
    assert [row.decision for row in rows()].count("locked") == 0
    assert len(rows("success")) == 3
    address = LoginCount.objects.get(scope=ip_hex("203.0.113.9"))
    assert address.failures == 12  # a success takes its own attempt back and no other


def test_an_account_that_does_not_exist_is_told_and_locked_alike() -> None:
    make_staff()
    known, unknown = login(), login("nobody")
    assert message(known) == message(unknown)
    for _ in range(4):
        login("nobody")
    assert login("nobody").status_code == 429
    row = rows("locked")[0]
    assert (row.actor_id, row.tenant) == ("unknown", "default")


def test_what_was_typed_for_an_unknown_account_is_kept_nowhere() -> None:
    login("my-password-by-mistake")
    with connection.cursor() as cursor:
        for table in ("audit_log", "login_count"):
            cursor.execute(f"SELECT * FROM {table}")
            assert "my-password" not in repr(cursor.fetchall())


def test_rows_have_the_address_in_hex_and_the_persons_tenant() -> None:
    person = make_staff()
    StaffMember.objects.create(user=person, tenant="east")
    login(address="2001:db8::7")
    login(password=RIGHT)
    failure, success = rows()
    assert (failure.tenant, failure.object_id, failure.input_summary["ip"]) == (
        "east",
        "20010db800000000",
        "20010db800000000",
    )
    assert success.object_id == "cb007109"
    text = repr([(row.object_id, row.input_summary) for row in rows()])
    assert "203.0.113.9" not in text
    assert RIGHT not in text


def test_people_who_may_not_log_in_are_told_like_a_wrong_password() -> None:
    make_staff("gone", is_active=False)
    User.objects.create(username="guest", password=make_password(RIGHT))
    said = {message(login(name, RIGHT)) for name in ("gone", "guest", "nobody")}
    assert len(said) == 1
    assert len(rows("success")) == 0


def test_an_account_is_one_however_it_is_spelled() -> None:
    """MariaDB's usual collation finds `lin` for `LIN`; where it does not, `LIN` is an unknown account of its own."""
    make_staff()
    spellings = ["lin", "LIN", "Lin", "lIn", "liN"]
    found = User.objects.filter(username="LIN").exists()
    for name in spellings:
        login(name)
    assert (login("lin", RIGHT).status_code == 429) is found


def test_unknown_accounts_have_no_spellings_either() -> None:
    for name in ("ghost", "GHOST", "Ghost ", "ｇｈｏｓｔ", "gHost"):
        login(name)
    assert login("ghost").status_code == 429


def test_an_address_is_locked_whatever_accounts_it_tries(settings: Any) -> None:
    settings.LOGIN_FAILURES_ADDRESS = 5
    make_staff()
    for number in range(5):
        login(f"user{number}")
    assert login(password=RIGHT).status_code == 429
    assert login(password=RIGHT, address="198.51.100.7").status_code == 302


def test_a_spoofed_header_is_no_other_address(settings: Any) -> None:
    settings.LOGIN_FAILURES_ADDRESS = 5
    for number in range(5):
        login(f"user{number}", HTTP_X_FORWARDED_FOR=f"198.51.100.{number}")
    assert login("x", HTTP_X_FORWARDED_FOR="198.51.100.77").status_code == 429
    settings.TRUSTED_PROXIES = [ipaddress.ip_network("10.0.0.0/8")]
    for number in range(5):
        login(f"more{number}", address="10.0.0.1", HTTP_X_FORWARDED_FOR=f"1.1.1.{number}, 198.51.100.9")
    assert login("x", address="10.0.0.1", HTTP_X_FORWARDED_FOR="1.1.1.77, 198.51.100.9").status_code == 429
    assert login("x", address="10.0.0.1", HTTP_X_FORWARDED_FOR="198.51.100.10").status_code == 200


def test_addresses_of_one_v6_network_are_one(settings: Any) -> None:
    settings.LOGIN_FAILURES_ADDRESS = 5
    for number in range(5):
        login(f"user{number}", address=f"2001:db8::{number + 1}")
    assert login("x", address="2001:db8::ffff").status_code == 429
    assert login("x", address="2001:db8:0:1::1").status_code == 200


def test_a_lock_ends_in_time_and_hits_do_not_push_it(own_redis_server: RedisServer, settings: Any) -> None:
    settings.LOGIN_LOCK_SECONDS = 2
    make_staff()
    for _ in range(5):
        login()
    began = time.monotonic()
    while login(password=RIGHT).status_code == 429:
        assert time.monotonic() - began < 4
    assert time.monotonic() - began > 1


@pytest.mark.parametrize("redis_up", [True, False])
def test_of_many_at_once_no_more_are_let_to_the_password_than_the_limit(
    redis_up: bool, own_redis_server: RedisServer
) -> None:
    if not redis_up:
        own_redis_server.kill()
    scopes = ("u-" + "0" * 32, "cb007109")
    start, counted, threads_n = threading.Barrier(64), [], 64

    def work() -> None:
        start.wait()
        try:
            for _ in range(2):
                counted.append(logins.count_attempt(scopes).wait)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(threads_n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counted) == 128
    assert counted.count(0) == 5


@pytest.mark.parametrize("redis_up", [True, False])
def test_of_thirty_at_once_one_locks_and_says_so(redis_up: bool, own_redis_server: RedisServer) -> None:
    """All are counted before any of them has failed, so each finds the account full when it fails."""
    make_staff()
    if not redis_up:
        own_redis_server.kill()
    start, counted, answers = threading.Barrier(30), threading.Barrier(5), []
    hashed = User.check_password

    def slow(self: User, password: str) -> bool:
        counted.wait(30)
        return hashed(self, password)

    def work() -> None:
        start.wait()
        try:
            request = RequestFactory().post(LOGIN, REMOTE_ADDR="203.0.113.9")
            answers.append(authenticate(request, username="lin", password=WRONG))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(30)]
    User.check_password = slow  # type: ignore[method-assign]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        User.check_password = hashed  # type: ignore[method-assign]
    assert answers == [None] * 30
    assert sorted(row.decision for row in rows()) == ["failure"] * 5 + ["locked"]
    assert rows("locked")[0].input_summary["locked"] == ["account"]


def test_each_lock_has_its_row_and_one_that_a_success_took_back_has_none(settings: Any) -> None:
    make_staff()
    settings.LOGIN_FAILURES_ADDRESS = 8
    for number in range(8):
        login("lin" if number < 5 else f"user{number}")
    assert [row.input_summary["locked"] for row in rows("locked")] == [["account"], ["address"]]
    scopes = ("u-" + "4" * 32, "cb007110")
    for _ in range(4):
        logins.count_attempt(scopes)
    last = logins.count_attempt(scopes)
    assert list(last.locks) == [scopes[0]]
    logins.give_back(scopes)  # the right password, at the same moment
    logins._failed(scopes, "lin", last)
    assert len(rows("locked")) == 2


def test_redis_away_counts_go_on(own_redis_server: RedisServer) -> None:
    make_staff()
    for _ in range(3):
        login()
    own_redis_server.kill()
    for _ in range(2):
        assert login().status_code == 200
    assert login(password=RIGHT).status_code == 429
    own_redis_server.start()
    base_redis.forget_clients()
    assert login(password=RIGHT).status_code == 429  # Redis itself knows of three


def test_an_emptied_redis_gives_no_new_tries(own_redis_server: RedisServer) -> None:
    make_staff()
    for _ in range(5):
        login()
    own_redis_server.empty()
    base_redis.forget_clients()
    assert login(password=RIGHT).status_code == 429


def test_redis_that_hangs_costs_a_short_wait(own_redis_server: RedisServer) -> None:
    scopes = ("u-" + "1" * 32, "cb007109")
    logins.count_attempt(scopes)
    own_redis_server.pause()
    try:
        began = time.monotonic()
        assert logins.count_attempt(scopes).wait == 0
        assert time.monotonic() - began < REDIS_PATIENCE + 0.15
    finally:
        own_redis_server.resume()


def test_who_is_locked_costs_one_query_and_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    make_staff()
    for _ in range(5):
        login()
    monkeypatch.setattr(User, "check_password", lambda *_: pytest.fail("hashed"))
    request = RequestFactory().post(LOGIN, REMOTE_ADDR="203.0.113.9")
    with CaptureQueriesContext(connection) as queries:
        assert authenticate(request, username="lin", password=RIGHT) is None
    assert len(queries) == 1


def test_an_unknown_account_is_hashed_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    monkeypatch.setattr(User, "set_password", lambda self, raw: hashed.append(raw))
    login("nobody")
    assert hashed == [WRONG]


def test_the_asynchronous_door_is_the_same() -> None:
    make_staff()
    request = RequestFactory().post(LOGIN, REMOTE_ADDR="203.0.113.9")
    for _ in range(5):
        assert async_to_sync(aauthenticate)(request, username="lin", password=WRONG) is None
    assert async_to_sync(aauthenticate)(request, username="lin", password=RIGHT) is None
    assert len(rows("locked")) == 1


def test_without_a_row_nobody_is_in_and_a_failure_that_is_not_written_is_a_failure_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_staff()

    def broken(self: AuditLog, *args: Any, **kwargs: Any) -> None:
        raise DatabaseError("full")

    monkeypatch.setattr(AuditLog, "save", broken)
    assert login().status_code == 200
    client = Client()
    assert client.post(LOGIN, {"username": "lin", "password": RIGHT}).status_code == 503
    assert "sessionid" not in client.cookies


def test_a_lock_goes_on_past_midnight(own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key's name has the day of the window's first attempt: what began before midnight still counts after it."""
    scopes = ("u-" + "2" * 32, "cb007109")
    for _ in range(5):
        assert logins.count_attempt(scopes).wait == 0
    LoginCount.objects.all().delete()  # Redis alone
    today = now()
    _begins, ends = logins.business_day_bounds(logins.business_date(today))
    # As if the day had begun this second: by the server's clock it is the next one.
    keys = logins._keys(scopes)[0]
    monkeypatch.setattr(
        logins, "_keys", lambda _: ([*keys[1:3], keys[2] + "x", *keys[4:6], keys[5] + "x"], today, ends)
    )
    assert logins.count_attempt(scopes).wait > 0


def test_counters_in_redis_have_an_end_and_one_without_is_mended(own_redis_server: RedisServer) -> None:
    scopes = ("u-" + "3" * 32, "cb007109")
    logins.count_attempt(scopes)
    own = own_redis_server.client()
    names = sorted(own.keys("*guard:login:*"))
    assert len(names) == 2
    assert all(0 < own.ttl(name) <= 900 for name in names)
    for name in names:
        own.persist(name)
    logins.count_attempt(scopes)
    assert all(0 < own.ttl(name) <= 900 for name in names)


def test_counters_that_are_over_are_pruned() -> None:
    login()
    assert logins.prune_logins() == 0
    LoginCount.objects.update(ends_at=now() - timedelta(hours=2))
    assert logins.prune_logins() == 2


def test_a_counter_that_somebody_spoilt_shuts_nobody_out_and_opens_nothing(own_redis_server: RedisServer) -> None:
    make_staff()
    own = own_redis_server.client()
    login()
    for name in own.keys("*guard:login:*"):
        own.delete(name)
        own.lpush(name, "x")
    assert login(password=RIGHT).status_code == 302
    for _ in range(5):
        login()
    assert login(password=RIGHT).status_code == 429
