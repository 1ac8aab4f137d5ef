"""Bodies that are sent in chunks, under WSGI: Django reads as much as Content-Length says, and there is none.

The server (gunicorn) ends such a body itself and says so (`wsgi.input_terminated`); one that does not say so cannot be
trusted to, and the request is answered 411.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from config.base.errors import DomainError

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Ended:
    """What the client sends, up to its end. Errors: BODY_TOO_LARGE past the limit, when somebody reads that far."""

    def __init__(self, source: Any, limit: int) -> None:
        self._source, self._limit, self._seen = source, limit, 0

    def _counted(self, data: bytes) -> bytes:
        self._seen += len(data)
        if self._seen >= self._limit and self._source.read(1):
            raise DomainError(
                "BODY_TOO_LARGE", f"the body is more than {self._limit} bytes; the limit is {self._limit}"
            )
        return data

    def read(self, size: int | None = None) -> bytes:
        return self._counted(self._source.read(*(() if size is None else (size,))))

    def readline(self, size: int | None = None) -> bytes:
        return self._counted(self._source.readline(*(() if size is None else (size,))))


class ChunkedBodies:
    """Around a WSGI application. limit: bytes. Cost: two look-ups for a request with a length."""

    def __init__(self, application: Application, limit: int) -> None:
        self._application, self._limit = application, limit

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("HTTP_TRANSFER_ENCODING") and not environ.get("CONTENT_LENGTH"):
            if not environ.get("wsgi.input_terminated"):
                return _length_required(start_response)
            environ["wsgi.input"] = _Ended(environ["wsgi.input"], self._limit)
            environ["CONTENT_LENGTH"] = str(self._limit)  # as far as Django may read
        return self._application(environ, start_response)


def _length_required(start_response: Callable[..., Any]) -> Iterable[bytes]:
    error = DomainError("LENGTH_REQUIRED", "this server takes no body in chunks: send it with Content-Length")
    body = json.dumps(error.problem("")).encode()
    start_response(
        "411 Length Required", [("Content-Type", "application/problem+json"), ("Content-Length", str(len(body)))]
    )
    return [body]
