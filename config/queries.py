"""Query strings are as strict as bodies: a name that a route does not take is refused, and one that comes twice.

A client that misspells `before_seq` would otherwise read the first page for ever.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from django.http import HttpRequest, QueryDict
from ninja import NinjaAPI
from ninja.operation import Operation

from config.base.errors import invalid_request

View = Callable[..., Any]

_TAKEN = "_query_names"
_SHOWN = 40  # characters of a name that is told back


def refuse_unknown_queries(api: NinjaAPI) -> None:
    """Every route of `api`, whichever room's, refuses what it does not take. To be called after all else that wraps.

    Asked after authentication (whoever may not call learns nothing else) and before anything is done, the idempotency
    key taken included. Cost: nothing to speak of, no round trip, no query.
    Errors of the routes: INVALID_REQUEST (422), which names the name and what the route takes.
    """
    api.add_decorator(_noting, mode="view")
    api.add_decorator(_checking, mode="operation")


def _noting(run: View) -> View:
    """Around the whole operation, which alone knows its parameters; the check is within, after authentication."""
    operation = getattr(inspect.unwrap(run), "__self__", None)
    if not isinstance(operation, Operation):
        raise TypeError("an operation is hidden behind a wrapper without functools.wraps")
    once, often = _names(operation)

    @functools.wraps(run)
    def noted(request: HttpRequest, **kwargs: Any) -> Any:
        setattr(request, _TAKEN, (once, often))
        return run(request, **kwargs)

    return noted


def _names(operation: Operation) -> tuple[frozenset[str], frozenset[str]]:
    """The names that a route takes once, and those it takes a list of."""
    known: set[str] = set()
    lists: set[str] = set()
    for model in operation.models:
        if model.__ninja_param_source__ == "query":
            known.update(getattr(model, "__ninja_flatten_map__", ()))
            lists.update(getattr(model, "__ninja_collection_fields__", ()))
    return frozenset(known - lists), frozenset(lists)


def _checking(view: View) -> View:
    @functools.wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.META.get("QUERY_STRING"):
            faults = list(_faults(request.GET, *getattr(request, _TAKEN)))
            if faults:
                raise invalid_request(faults)
        return view(request, *args, **kwargs)

    return checked


def _faults(query: QueryDict, once: frozenset[str], often: frozenset[str]) -> Iterator[dict[str, Any]]:
    for name, values in query.lists():
        shown = name if len(name) <= _SHOWN else name[: _SHOWN - 1] + "…"
        if name in once:
            if len(values) > 1:
                yield {"loc": ("query", shown), "msg": f"is given {len(values)} times; give it once"}
        elif name not in often:
            takes = ", ".join(sorted(once | often)) or "none"
            yield {"loc": ("query", shown), "msg": f"no such parameter; this route takes: {takes}"}
