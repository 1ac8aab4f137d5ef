"""Whom an alert calls, and what everybody else who may see it gets instead."""

from __future__ import annotations

import time

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from guard.access.models import StaffMember
from guard.access.roles import COMPLIANCE_AUDITOR, PLATFORM_ADMIN, RISK_MANAGER, RISK_OFFICER
from risk.alerts.models import AlertOutbox, RiskAlert, RiskAlertHit
from risk.alerts.services import claim
from risk.feed.services import publish
from risk.feed.watch import CALLED, VIEW, Watcher, watchers_of
from tests.risk.alerts.people import make_hit, make_manager, make_person, settle, the_alert
from tests.risk.feed.server import Watching, log_in

pytestmark = pytest.mark.django_db(transaction=True)


def grant_view(user: User) -> User:
    user.user_permissions.add(Permission.objects.get(codename="view_riskalert"))
    return user


def test_an_alert_calls_the_roles_it_names_and_is_an_update_for_others(port) -> None:
    alice, admin = make_person("alice"), User.objects.create_superuser("root", password="x")
    people = [alice, admin, make_manager(), grant_view(make_person("onlooker", COMPLIANCE_AUDITOR))]
    sockets = [Watching(port, log_in(person)) for person in people]
    for one in sockets:
        one.next()
    settle(make_hit())  # medium: it calls the officers
    publish()
    low = the_alert()
    stands = {"alert_id": low.alert_id, "status": "pending", "assignee": None, "level": None, "version": low.version}
    called = {"type": "alert", "seq": 1, "alert": AlertOutbox.objects.get(seq=1).event}
    assert called["alert"]["notify_role"] == [RISK_OFFICER]
    assert [one.news(1) for one in sockets[:2]] == [[called]] * 2
    assert [one.news(1) for one in sockets[2:]] == [[{"type": "update", "seq": 1, **stands}]] * 2

    settle(make_hit("T2", customer="C0000018", score=95))  # critical: it has a level, and calls the managers too
    claim(alert_id=low.alert_id, officer=alice)
    publish()
    high = RiskAlert.objects.exclude(alert_id=low.alert_id).get()
    seen = [one.news(2) for one in sockets]
    assert [[frame["seq"] for frame in frames] for frames in seen] == [[2, 3]] * 4, "no number is missing"
    assert [frames[0]["type"] for frames in seen] == ["alert", "alert", "alert", "update"]
    assert seen[3][0]["level"] == high.escalation_level != ""
    assert {frames[1]["type"] for frames in seen} == {"update"}
    sockets[2].say({"type": "resume", "after": 0})
    again = sockets[2].news(3)
    assert [(frame["type"], frame["seq"]) for frame in again] == [("update", 1), ("alert", 2), ("update", 3)]
    assert again == [{"type": "update", "seq": 1, **stands}, *seen[2]], "the same words again"
    for one in sockets:
        one.socket.close()


def test_an_alert_that_is_not_there_any_more_is_void_for_those_it_does_not_call(port) -> None:
    settle(make_hit())
    publish()
    RiskAlertHit.objects.all().delete()
    RiskAlert.objects.all().delete()
    with Watching(port, log_in(make_manager())) as manager:
        manager.next()
        manager.say({"type": "resume", "after": 0})
        assert manager.news(1) == [{"type": "void", "seq": 1}]


def test_whom_an_alert_calls_follows_the_role_while_the_socket_is_open(port, settings) -> None:
    settings.FEED_WATCH_SECONDS = 1
    mei = make_manager()
    officers = make_person("alice").groups.all()
    with Watching(port, log_in(mei)) as socket:
        socket.next()
        mei.groups.set(officers)
        deadline = time.monotonic() + 5
        frame = {"type": "update"}
        for n in range(50):
            settle(make_hit(f"T{n}", customer=f"C{n}"))
            publish()
            frame = socket.news(1)[0]
            assert frame["seq"] == n + 1
            if frame["type"] == "alert":
                break
            time.sleep(0.1)
        assert frame["type"] == "alert"
        assert time.monotonic() < deadline


def test_watchers_are_whom_django_would_let_see_whatever_their_number() -> None:
    people = [make_person(f"p{n}", role) for n, role in enumerate([RISK_OFFICER, RISK_MANAGER, PLATFORM_ADMIN, ""])]
    people += [grant_view(make_person("hand", "")), User.objects.create_superuser("root", password="x")]
    gone = make_person("gone")
    StaffMember.objects.create(user=people[1], tenant="acme")
    clients = {person.pk: log_in(person) for person in [*people, gone, people[0]]}
    keys = {client.session.session_key: pk for pk, client in clients.items()}
    User.objects.filter(pk=gone.pk).update(is_active=False)
    known: dict = {}
    for _ in range(2):
        with CaptureQueriesContext(connection) as asked:
            found = watchers_of({*keys, "not a session"}, known)
        assert len(asked) == 6
        assert {keys[key] for key in found} == {person.pk for person in people}
        for key, watcher in found.items():
            person = User.objects.get(pk=keys[key])
            roles = CALLED if person.is_superuser else CALLED & set(person.groups.values_list("name", flat=True))
            tenant = "acme" if person == people[1] else "default"
            assert watcher == Watcher(person.pk, tenant, person.has_perm(VIEW), roles)
    people[0].set_password("another")
    people[0].save()
    clients[people[1].pk].session.flush()
    assert {keys[key] for key in watchers_of(keys, known)} == {person.pk for person in people[2:]}
