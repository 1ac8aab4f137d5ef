"""Documents that are written from code: writing them, and telling whether they are as the code says."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings


def path_of(name: str) -> Path:
    return Path(settings.BASE_DIR) / "docs" / name


def is_fresh(name: str, text: str) -> bool:
    path = path_of(name)
    return path.exists() and path.read_text(encoding="utf-8") == text


def write(name: str, text: str) -> Path:
    path = path_of(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
