"""Erases a customer, and prints the receipt."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection

from config.base.errors import DomainError
from memory.erasure.models import ErasureReceipt
from memory.erasure.printing import lines, table
from memory.erasure.services import as_dict, erase_customer, plan
from memory.management.commands.reconcile import operator


class Command(BaseCommand):
    help = (
        "Removes a customer's conversations, profiles, cached copies and queued messages, and refuses whoever writes "
        "for the customer from then on. Safe to repeat: a second run goes on where a first one stopped, and prints "
        "the same receipt. Exit code 0: done; 1: refused by a legal hold, or a part is still to do (the receipt says "
        "which, and what waits for Redis is finished by the workers); 2: wrong arguments, or the database is away."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("customer_id", help="the customer, exactly")
        parser.add_argument("--tenant", default="default")
        parser.add_argument("--by", default="", help="who decided (default: the account that runs this)")
        parser.add_argument("--reason", default="", help="why, without the customer's name; it stays on the receipt")
        parser.add_argument("--dry-run", action="store_true", help="say what would be removed and kept; touch nothing")
        parser.add_argument("--json", action="store_true", help="machine-readable receipt")

    def handle(self, *args: Any, **options: Any) -> None:
        who = {"tenant": options["tenant"], "customer_id": options["customer_id"]}
        try:
            if options["dry_run"]:
                self._plan(who, options["json"])
            else:
                by = options["by"] or operator()
                receipt = erase_customer(**who, by=by, reason=options["reason"])
                self._tell(receipt, options["json"])
        except DomainError as error:
            if options["json"] and not options["dry_run"]:
                self.stdout.write(json.dumps({"code": error.code, "detail": error.detail}, sort_keys=True))
            raise CommandError(f"{error.code}: {error.detail}", returncode=1 if error.status == 409 else 2) from None
        except DatabaseError as error:
            raise CommandError(f"not done: the database answers {type(error).__name__}", returncode=2) from None
        finally:
            connection.close()

    def _plan(self, who: dict[str, str], as_json: bool) -> None:
        found = plan(**who)
        if as_json:
            self.stdout.write(
                json.dumps(
                    {"dry_run": True, "removes": found.removes, "keeps": found.keeps, "held": found.held},
                    sort_keys=True,
                )
            )
        else:
            for line in table("would be removed", found.removes):
                self.stdout.write(line)
        if found.held:
            raise DomainError("LEGAL_HOLD")

    def _tell(self, receipt: ErasureReceipt, as_json: bool) -> None:
        shown = as_dict(receipt)
        if as_json:
            self.stdout.write(json.dumps(shown, ensure_ascii=False, sort_keys=True))
        else:
            for line in lines(shown):
                self.stdout.write(line)
        if receipt.state != ErasureReceipt.State.DONE:
            raise CommandError("a part is still to do; the receipt names it", returncode=1)
