"""What a file is, by what is in it. Its name and what the browser says of it count for nothing.

A closed list: papers, pictures, tables and recordings that officers get as evidence. No library here: each of them
knows hundreds of types and tells them by a few bytes; these few are told by more, and what is none of them is refused.
"""

from __future__ import annotations

import codecs
import zipfile
from dataclasses import dataclass
from typing import IO

from config.base.errors import DomainError

_HEAD = 64
_PIECE = 256 * 1024
_MOST_MEMBERS = 5_000  # of a zip, before its directory is believed to be an office document's
_MOST_DIRECTORY = 1024 * 1024  # bytes: 200 for each of them
_END_NUMBER, _END_SIZE = 4, 5  # where zipfile has them


@dataclass(frozen=True)
class Kind:
    """media_type: as it is served. endings: of a file name; the first is given to one that has none of them."""

    media_type: str
    endings: tuple[str, ...]


PDF = Kind("application/pdf", (".pdf",))
PNG = Kind("image/png", (".png",))
JPEG = Kind("image/jpeg", (".jpg", ".jpeg"))
WEBP = Kind("image/webp", (".webp",))
WAV = Kind("audio/wav", (".wav",))
MP3 = Kind("audio/mpeg", (".mp3",))
MP4 = Kind("video/mp4", (".mp4", ".m4a"))
TEXT = Kind("text/plain", (".txt", ".csv", ".log"))
DOCX = Kind("application/vnd.openxmlformats-officedocument.wordprocessingml.document", (".docx",))
XLSX = Kind("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", (".xlsx",))

KINDS = (PDF, PNG, JPEG, WEBP, DOCX, XLSX, TEXT, WAV, MP3, MP4)
ENDINGS = tuple(ending for kind in KINDS for ending in kind.endings)

_BY_HEAD = (
    (b"%PDF-", PDF),
    (b"\x89PNG\r\n\x1a\n", PNG),
    (b"\xff\xd8\xff", JPEG),
    (b"ID3", MP3),
    (b"\xff\xfb", MP3),
    (b"\xff\xf3", MP3),
    (b"\xff\xf2", MP3),
)
_BRANDS = {b"isom", b"iso2", b"mp41", b"mp42", b"avc1", b"M4A ", b"M4V ", b"qt  "}


def kind_of(file: IO[bytes]) -> Kind:
    """Reads the file from its start and leaves it there. Cost: its head; of texts all of it, a piece at a time.

    Errors: ATTACHMENT_TYPE for what is not on the list, and for office documents with macros.
    """
    file.seek(0)
    head = file.read(_HEAD)
    kind = next((one for start, one in _BY_HEAD if head.startswith(start)), None)
    if kind is None and head[:4] == b"RIFF":
        kind = {b"WEBP": WEBP, b"WAVE": WAV}.get(head[8:12])
    if kind is None and head[4:8] == b"ftyp" and head[8:12] in _BRANDS:
        kind = MP4
    if kind is None and head[:4] == b"PK\x03\x04":
        kind = _office(file)
    if kind is None and _is_text(file):
        kind = TEXT
    file.seek(0)
    if kind is None:
        raise DomainError(
            "ATTACHMENT_TYPE", f"what is in this file is none of {', '.join(ENDINGS)}", endings=list(ENDINGS)
        )
    return kind


def _office(file: IO[bytes]) -> Kind | None:
    """By the members that such a document must have. One with macros is none."""
    file.seek(0)
    try:
        # What the library believes of the end of the file. Its directory is read into memory, entry by entry: one that
        # is too large is not begun. The number may lie, the size may not.
        end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
        if not end or end[_END_NUMBER] > _MOST_MEMBERS or end[_END_SIZE] > _MOST_DIRECTORY:
            return None
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, zipfile.LargeZipFile, ValueError, OSError, NotImplementedError):
        return None
    if len(names) > _MOST_MEMBERS or "[Content_Types].xml" not in names:
        return None
    if any(name.lower().endswith((".bin", ".exe", ".dll", ".js", ".vbs")) and "vba" in name.lower() for name in names):
        return None
    if "word/document.xml" in names:
        return DOCX
    return XLSX if "xl/workbook.xml" in names else None


def _is_text(file: IO[bytes]) -> bool:
    """UTF-8 or GB18030 throughout, without control characters; markup is no text, for a browser may run it."""
    return any(_reads_as(file, encoding) for encoding in ("utf-8-sig", "gb18030"))


def _reads_as(file: IO[bytes], encoding: str) -> bool:
    file.seek(0)
    decoder = codecs.getincrementaldecoder(encoding)()
    start = ""
    try:
        while piece := file.read(_PIECE):
            text = decoder.decode(piece)
            start = start or text.lstrip()[:1]
            if start == "<" or any(char < " " and char not in "\t\n\r\f" for char in text):
                return False
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return bool(start)
