"""Files that are sent with forms: bounded before anything of ours looks at them.

Django reads a form while it looks for its CSRF token, which is before anybody is asked who they are. Without this a
body of any size would be written to the disk of whoever serves it.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.files.uploadhandler import FileUploadHandler, StopUpload
from django.http import HttpRequest


class BoundedUploads(FileUploadHandler):
    """Lets ATTACHMENT_MOST_BYTES of files through, of one request together; then the rest of the body is read and
    thrown away, and `too_much` says so. First of FILE_UPLOAD_HANDLERS."""

    def __init__(self, request: HttpRequest | None = None) -> None:
        super().__init__(request)
        self._taken = 0

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        self._taken += len(raw_data)
        if self._taken > settings.ATTACHMENT_MOST_BYTES:
            if self.request is not None:
                self.request.upload_too_much = True  # type: ignore[attr-defined]
            raise StopUpload(connection_reset=False)
        return raw_data

    def file_complete(self, file_size: int) -> None:
        return None


def too_much(request: Any) -> bool:
    """Whether files of this request were left out because they are too large."""
    return bool(getattr(request, "upload_too_much", False))
