"""Issues, lists, rotates and revokes the keys of agent services."""

from __future__ import annotations

import getpass
import json
import re
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.base.clock import now, rfc3339
from config.base.errors import DomainError
from guard.access.models import Agent, AgentPrincipal
from guard.access.services import IssuedKey, issue_key, revoke_key, rotate_key

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LIFETIME = re.compile(r"([0-9]{1,6})([mhdw])\Z")


def lifetime(text: str, option: str = "--expires-in") -> timedelta:
    """`30d`, `12h`, `15m` or `2w`. Errors: CommandError."""
    found = _LIFETIME.match(text)
    if not found:
        raise CommandError(
            f"{option} {text!r} is no time span; use a number and m, h, d or w, such as 30d", returncode=2
        )
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def state_of(principal: AgentPrincipal) -> str:
    """`revoked`, `expired`, `rotated` (good until its overlap ends) or `active`, now."""
    if principal.revoked_at is not None:
        return "revoked"
    if principal.expires_at is not None and principal.expires_at <= now():
        return "expired"
    return "rotated" if principal.replaced_by else "active"


class Command(BaseCommand):
    help = (
        "Issues a key for an agent service and prints it once: only its digest is kept. "
        "With --list, --rotate or --revoke, looks at, replaces or ends keys that exist. "
        "Exit code 0: done; 1: refused or the database is away; 2: wrong arguments."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--agent", choices=Agent.values, help="the agent that the key is for")
        parser.add_argument("--actor", default="", help="bind the key to one person: it then needs no X-Actor-Id")
        parser.add_argument("--tenant", default=None, help="the tenant (default: default)")
        parser.add_argument(
            "--expires-in", default="", metavar="30d|12h", help="lifetime; without it the key stays valid"
        )
        parser.add_argument("--note", default="", help="who asked for it and why")
        parser.add_argument("--list", action="store_true", help="list keys (never the keys themselves)")
        parser.add_argument("--revoke", metavar="PRINCIPAL_ID", help="end this key now (others see it within 5 s)")
        parser.add_argument("--rotate", metavar="PRINCIPAL_ID", help="a new key in this one's place; prints it once")
        parser.add_argument(
            "--overlap", default="", metavar="1h|7d", help="with --rotate: how long the old key stays valid (0m: not)"
        )
        parser.add_argument("--json", action="store_true", help='machine-readable: {"key", "principal"}')

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if sum(bool(options[one]) for one in ("list", "revoke", "rotate")) > 1:
                raise CommandError("--list, --rotate and --revoke are three things; give one of them", returncode=2)
            if bool(options["overlap"]) != bool(options["rotate"]):
                raise CommandError("--rotate PRINCIPAL_ID and --overlap 1h go together", returncode=2)
            if options["revoke"]:
                self._revoke(options)
            elif options["rotate"]:
                self._rotate(options)
            elif options["list"]:
                self._list(options)
            else:
                self._issue(options)
        except DomainError as error:
            raise CommandError(error.detail, returncode=2 if error.status == 422 else 1) from None

    def _issue(self, options: dict[str, Any]) -> None:
        if not options["agent"]:
            raise CommandError(f"say which agent the key is for: --agent {'|'.join(Agent.values)}", returncode=2)
        issued = issue_key(
            agent=options["agent"],
            tenant=options["tenant"] or "default",
            actor_id=options["actor"],
            expires_in=lifetime(options["expires_in"]) if options["expires_in"] else None,
            note=options["note"],
            issued_by=_operator(),
        )
        self._show(issued, options)

    def _show(self, issued: IssuedKey, options: dict[str, Any]) -> None:
        principal = issued.principal
        if options["json"]:
            self.stdout.write(json.dumps({"key": issued.key, "principal": principal.principal_id}))
            return
        self.stdout.write(f"key        {issued.key}")
        self.stdout.write(f"principal  {principal.principal_id}")
        bound = f"acts for {principal.actor_id}" if principal.actor_id else "send X-Actor-Id with each request"
        until = f"until {rfc3339(principal.expires_at)}" if principal.expires_at else "without an end"
        self.stdout.write(f"           {principal.tenant}/{principal.agent}, {bound}, valid {until}")
        self.stderr.write("The key is not shown again: keep it now. Revoke it with --revoke and the principal.")

    def _rotate(self, options: dict[str, Any]) -> None:
        issued = rotate_key(
            principal_id=options["rotate"],
            overlap=lifetime(options["overlap"], "--overlap"),
            expires_in=lifetime(options["expires_in"]) if options["expires_in"] else None,
            tenant=options["tenant"],
            rotated_by=_operator(),
        )
        self._show(issued, options)

    def _revoke(self, options: dict[str, Any]) -> None:
        principal = revoke_key(principal_id=options["revoke"], revoked_by=_operator())
        assert principal.revoked_at is not None
        if options["json"]:
            line = {"principal": principal.principal_id, "revoked_at": rfc3339(principal.revoked_at)}
            self.stdout.write(json.dumps(line))
        else:
            self.stdout.write(f"revoked {principal} at {rfc3339(principal.revoked_at)}")

    def _list(self, options: dict[str, Any]) -> None:
        rows = AgentPrincipal.objects.order_by("tenant", "agent", "created_at")
        if options["tenant"]:
            rows = rows.filter(tenant=options["tenant"])
        if options["agent"]:
            rows = rows.filter(agent=options["agent"])
        items = [
            {
                "principal": row.principal_id,
                "tenant": row.tenant,
                "agent": row.agent,
                "actor": row.actor_id,
                "state": state_of(row),
                "created_at": rfc3339(row.created_at),
                "expires_at": rfc3339(row.expires_at) if row.expires_at else None,
                "revoked_at": rfc3339(row.revoked_at) if row.revoked_at else None,
                "replaced_by": row.replaced_by or None,
                "last_used_at": rfc3339(row.last_used_at) if row.last_used_at else None,
                "note": row.note,
            }
            for row in rows
        ]
        if options["json"]:
            self.stdout.write(json.dumps(items, ensure_ascii=False))
            return
        for item in items:
            who = f"{item['tenant']}/{item['agent']}/{item['actor'] or '*'}"
            self.stdout.write(f"{item['principal']}  {item['state']:<8} {who:<32} {item['created_at']}  {item['note']}")
        if not items:
            self.stdout.write("no keys; issue one with manage.py agent_key --agent customer")


def _operator() -> str:
    """Who runs the command, for the audit: the account on this machine."""
    try:
        return f"manage.py:{getpass.getuser()}"
    except (KeyError, OSError):
        return "manage.py"
