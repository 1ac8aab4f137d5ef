"""Whether work may start, decided in one call: `from guard.admission import admit`.

Looked up when asked for: Django imports this package for its tables, before anything that uses them may be.
"""

from __future__ import annotations

from typing import Any

_DOORS = {"admit": "services", "release": "services", "renew": "services", "settle": "services", "hold": "holding"}


def __getattr__(name: str) -> Any:
    if name in _DOORS:
        from importlib import import_module

        return getattr(import_module(f"guard.admission.{_DOORS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
