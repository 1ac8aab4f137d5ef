"""What each tenant has in memory; and the clean-up of one."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection

from config.base.errors import DomainError
from config.base.redis import RedisUnavailable
from memory.erasure.models import ErasureReceipt
from memory.erasure.printing import lines
from memory.erasure.services import as_dict, erase_tenant
from memory.erasure.tenants import COLUMNS, count_tenants
from memory.management.commands.reconcile import operator


class Command(BaseCommand):
    help = (
        "Counts, for each tenant: sessions, those open in Redis, messages and their bytes, queued messages, dead "
        "letters, profiles. With --erase, removes all that one tenant has in memory: its agent keys are revoked first. "
        "Exit code 0: done; 1: refused by a legal hold, nothing is known of such a tenant, or a part is still to do; "
        "2: wrong arguments, or Redis or the database is away."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--erase", metavar="TENANT", help="remove all of this tenant")
        parser.add_argument("--confirm", metavar="TENANT", help="its name once more")
        parser.add_argument("--by", default="", help="who decided (default: the account that runs this)")
        parser.add_argument("--reason", default="")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["erase"] is None:
                self._count(options["json"])
            elif options["erase"] != options["confirm"]:
                raise CommandError("say the tenant's name again with --confirm: everything of it goes", returncode=2)
            else:
                self._erase(options)
        except DomainError as error:
            if options["json"]:
                self.stdout.write(json.dumps({"code": error.code, "detail": error.detail}, sort_keys=True))
            refused = error.status in (404, 409)
            raise CommandError(f"{error.code}: {error.detail}", returncode=1 if refused else 2) from None
        except RedisUnavailable as error:
            raise CommandError(f"not done: {error}", returncode=2) from None
        except DatabaseError as error:
            raise CommandError(f"not done: the database answers {type(error).__name__}", returncode=2) from None
        finally:
            connection.close()

    def _count(self, as_json: bool) -> None:
        counted = count_tenants()
        if as_json:
            self.stdout.write(json.dumps(counted, sort_keys=True))
            return
        width = max([6, *map(len, counted)])
        self.stdout.write("  ".join(["tenant".ljust(width), *(name.rjust(len(name)) for name in COLUMNS)]))
        for tenant, row in counted.items():
            self.stdout.write("  ".join([tenant.ljust(width), *(str(row[name]).rjust(len(name)) for name in COLUMNS)]))

    def _erase(self, options: dict[str, Any]) -> None:
        receipt = erase_tenant(tenant=options["erase"], by=options["by"] or operator(), reason=options["reason"])
        shown = as_dict(receipt)
        if options["json"]:
            self.stdout.write(json.dumps(shown, ensure_ascii=False, sort_keys=True))
        else:
            for line in lines(shown):
                self.stdout.write(line)
        if receipt.state != ErasureReceipt.State.DONE:
            raise CommandError("a part is still to do; the receipt names it", returncode=1)
