"""`manage.py prune`: removes what is kept no longer, and says what is kept how long."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand, CommandError
from django.db import DatabaseError
from tqdm import tqdm

from config import documents, pruning, retention_registry
from config.base.errors import DomainError
from config.base.ids import check_id
from config.base.retention import Retention
from config.pruning import Pruned

DOCUMENT = "retention.md"


class Command(BaseCommand):
    help = (
        f"Removes what is kept no longer, as docs/{DOCUMENT} says, in short transactions; safe beside writers and "
        "beside another prune, and gone on with after a kill. Exit code 0: nothing is left that could go; 1: something "
        "is, for the time was over or a table failed; 2: nothing was done."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--write", action="store_true", help=f"write docs/{DOCUMENT}")
        what.add_argument("--fresh", action="store_true", help=f"exit code 1 when docs/{DOCUMENT} is out of date")
        what.add_argument("--list", action="store_true", help="print what is kept how long here")
        what.add_argument("--dry-run", action="store_true", help="count what would go, and remove nothing")
        parser.add_argument("--table", action="append", metavar="NAME", help="only this one, as --list names it")
        parser.add_argument("--tenant", help="only this tenant's rows")
        parser.add_argument(
            "--batch", type=int, default=pruning.BATCH, metavar="ROWS", help="rows of a transaction (1 to 10000)"
        )
        parser.add_argument("--seconds", type=float, metavar="S", help="begin no batch later than that")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        rules = retention_registry.load()
        if options["write"]:
            self.stdout.write(f"wrote {documents.write(DOCUMENT, retention_registry.as_markdown(rules))}")
        elif options["fresh"]:
            if not documents.is_fresh(DOCUMENT, retention_registry.as_markdown(rules)):
                self.stderr.write(f"docs/{DOCUMENT} is out of date; run manage.py prune --write")
                sys.exit(1)
        elif options["list"]:
            self._list(rules, as_json=options["json"])
        else:
            self._prune(rules, options)

    def _list(self, rules: list[Retention], *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(retention_registry.as_rows(rules), ensure_ascii=False, indent=2))
            return
        for rule in rules:
            said = retention_registry.duration(rule, rule.period)
            self.stdout.write(f"{rule.name}: {said}{', from: ' + rule.since if rule.since else ''}")

    def _prune(self, rules: list[Retention], options: dict[str, Any]) -> None:
        chosen = self._chosen(rules, options["table"])
        if options["dry_run"]:
            chosen = [rule for rule in chosen if rule.rows is not None]  # what guard sweeps it does not count
        if not 1 <= options["batch"] <= 10_000:
            raise CommandError(f"--batch {options['batch']} is outside 1..10000", returncode=2)
        try:
            if options["tenant"] is not None:
                check_id("tenant", options["tenant"])
            bar = tqdm(unit=" rows", disable=True if options["json"] else None, file=self.stderr)
            with bar:

                def progress(result: Pruned, many: int) -> None:
                    bar.set_description(result.name, refresh=False)
                    bar.update(many)

                results = pruning.prune(
                    chosen,
                    tenant=options["tenant"],
                    batch=options["batch"],
                    seconds=options["seconds"],
                    dry_run=options["dry_run"],
                    progress=progress,
                )
        except DomainError as error:
            raise CommandError(error.detail, returncode=2) from None
        except DatabaseError as error:
            raise CommandError(f"the database does not answer ({type(error).__name__})", returncode=2) from None
        self._print(results, dry_run=options["dry_run"], as_json=options["json"])
        if all(one.error for one in results) and results:
            sys.exit(2)
        if not all(one.done for one in results):
            sys.exit(1)

    def _chosen(self, rules: list[Retention], names: list[str] | None) -> list[Retention]:
        """Errors: CommandError for a table that is not pruned, with the reason."""
        pruned = {rule.name: rule for rule in rules if rule.prunable}
        if names is None:
            return list(pruned.values())
        known = {rule.name: rule for rule in rules}
        for name in names:
            if name not in known:
                raise CommandError(f"there is no table {name!r}; these are pruned: {', '.join(pruned)}", returncode=2)
            if name not in pruned:
                rule = known[name]
                said = retention_registry.duration(rule, rule.period)
                raise CommandError(f"{name} is not pruned: kept {said}; {rule.why}", returncode=2)
        return [pruned[name] for name in dict.fromkeys(names)]

    def _print(self, results: list[Pruned], *, dry_run: bool, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps({"dry_run": dry_run, "tables": [one.as_json() for one in results]}, indent=2))
            return
        verb = "would go" if dry_run else "gone"
        for one in results:
            parts = [f"{one.removed} {verb}", *(f"{many} of {table}" for table, many in sorted(one.also.items()))]
            parts += [f"{one.held} held"] * bool(one.held) + [f"{one.spared} still needed"] * bool(one.spared)
            ending = f"; stopped: {one.error}" if one.error else "" if one.done else "; more is left"
            self.stdout.write(f"{one.name}: {', '.join(parts)}{ending}")
