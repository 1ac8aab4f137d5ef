#!/usr/bin/env python
"""Entry point of every operator's command; `manage.py help` lists them."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from django.db import DatabaseError, InterfaceError, OperationalError, ProgrammingError
    except ImportError as error:
        raise SystemExit(
            "Django is not installed for this Python: run `make setup`, then use .venv/bin/python manage.py"
        ) from error
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        if "--traceback" in sys.argv:
            raise
        raise SystemExit(f"settings: {error}") from None
    except DatabaseError as error:
        if "--traceback" in sys.argv:
            raise
        # A server that is away, locked or not migrated speaks of itself; other errors may quote a row.
        speaks = isinstance(error, OperationalError | ProgrammingError | InterfaceError)
        words = str(error.args[-1])[:200] if speaks and error.args else "the database refused a row"
        advice = (
            "run manage.py migrate" if "no such table" in words or "doesn't exist" in words else "see manage.py doctor"
        )
        print(f"database: {type(error).__name__}: {words}; {advice}", file=sys.stderr)  # noqa: T201
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
