"""Places, releases and lists legal holds."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection

from config.base.clock import rfc3339
from config.base.errors import DomainError
from memory.erasure.holds import place_hold, release_hold
from memory.erasure.models import LegalHold
from memory.management.commands.reconcile import operator


def shown(hold: LegalHold) -> dict[str, Any]:
    return {
        "hold": hold.pk,
        "tenant": hold.tenant,
        "customer_id": hold.customer_id,
        "reason": hold.reason,
        "placed_by": hold.placed_by,
        "placed_at": rfc3339(hold.placed_at),
        "released_by": hold.released_by or None,
        "released_at": rfc3339(hold.released_at) if hold.released_at else None,
    }


class Command(BaseCommand):
    help = (
        "While a legal hold is in force nothing of the customer is erased; an erasure that runs stops. "
        "Exit code 0: done; 1: refused (the customer is erased already, or there is no such hold); 2: wrong arguments, "
        "or the database is away."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        place = verbs.add_parser("place", help="put a hold into force")
        place.add_argument("customer_id")
        place.add_argument("--reason", required=True, help="why, without the customer's name")
        release = verbs.add_parser("release", help="end a hold")
        release.add_argument("hold", type=int, help="its number, as `list` shows it")
        everything = verbs.add_parser("list", help="holds in force")
        everything.add_argument("--all", action="store_true", help="also those that were released")
        for verb in (place, release, everything):
            verb.add_argument("--tenant", default="default")
            verb.add_argument("--by", default="", help="who decided (default: the account that runs this)")
            verb.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant, by = options["tenant"], options["by"] or operator()
        try:
            if options["verb"] == "place":
                customer_id, reason = options["customer_id"], options["reason"]
                holds = [place_hold(tenant=tenant, customer_id=customer_id, reason=reason, by=by)]
            elif options["verb"] == "release":
                holds = [release_hold(hold_id=options["hold"], by=by, tenant=tenant)]
            else:
                rows = LegalHold.objects.filter(tenant=tenant).order_by("pk")
                holds = list(rows if options["all"] else rows.filter(released_at=None))
        except DomainError as error:
            raise CommandError(f"{error.code}: {error.detail}", returncode=2 if error.status == 422 else 1) from None
        except DatabaseError as error:
            raise CommandError(f"not done: the database answers {type(error).__name__}", returncode=2) from None
        finally:
            connection.close()
        if options["json"]:
            rows_shown = [shown(hold) for hold in holds]
            self.stdout.write(json.dumps(rows_shown if options["verb"] == "list" else rows_shown[0], sort_keys=True))
            return
        for hold in holds:
            until = f", released {rfc3339(hold.released_at)} by {hold.released_by}" if hold.released_at else ""
            self.stdout.write(f"hold {hold.pk} on {hold.customer_id}, by {hold.placed_by}: {hold.reason}{until}")
        if not holds:
            self.stdout.write("no legal holds")
