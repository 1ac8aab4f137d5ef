"""Lifts an actor's block."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from config.base.errors import DomainError
from config.base.ids import check_id
from guard.admission.blocks import lift_block
from guard.management.commands.agent_key import _operator


class Command(BaseCommand):
    help = (
        "Lifts the block of an actor at once, and records who did. "
        "Exit code 0: lifted; 1: the actor was not blocked; 2: wrong arguments, or the database is away."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("actor", help="the actor's id")
        parser.add_argument("--tenant", default="default")
        parser.add_argument("--by", default="", help="who decided (default: the account that runs this)")
        parser.add_argument("--json", action="store_true", help='machine-readable: {"actor", "lifted"}')

    def handle(self, *args: Any, **options: Any) -> None:
        actor, tenant = options["actor"], options["tenant"]
        try:
            check_id("actor", actor)
            check_id("tenant", tenant)
            lifted = lift_block(tenant=tenant, actor_id=actor, by=options["by"] or _operator())
        except DomainError as refused:
            raise CommandError(refused.detail, returncode=2) from None
        except DatabaseError as error:
            raise CommandError(f"the database is away ({type(error).__name__})", returncode=2) from None
        if options["json"]:
            self.stdout.write(json.dumps({"actor": actor, "lifted": lifted}))
        else:
            self.stdout.write(f"{actor} is not blocked any more" if lifted else f"{actor} was not blocked")
        if not lifted:
            raise SystemExit(1)
