"""What this machine remembers of the chain's head, in a file beside the database and not in it.

Whoever owns the database alone can take the newest seals away, and what is left is a shorter chain that is whole. The
sealer therefore leaves the head that it has seen committed in DATA_DIR, one signed line, and goes on from nothing less:
where the remembered seal is not there, the next seal names it as the one before, and the hole shows for good.

It is no anchor: who owns this machine can change the file. An anchor stands elsewhere (anchors.py).
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection

from guard.audit import sealkeys
from guard.audit.anchors import Anchor, AnchorFault, last_anchor, line_of

logger = logging.getLogger(__name__)


def path() -> Path:
    """One file for each database: a program that is pointed at another one does not take it for this one."""
    own: dict[str, Any] = connection.settings_dict
    name = str(own.get("NAME", ""))
    if connection.vendor == "sqlite":
        where = ("sqlite", Path(name).name)  # the folder may be moved with its database
    else:
        where = ("mysql", f"{own.get('HOST', '')}:{own.get('PORT', '')}/{name}")
    return Path(settings.AUDIT_MEMORY_DIR) / f"audit_head.{hashlib.sha256(repr(where).encode()).hexdigest()[:12]}"


def remembered() -> Anchor | None:
    """The head as it was remembered last; None: there is no file, or none that can be read (a WARNING then)."""
    try:
        return last_anchor(path())
    except (AnchorFault, sealkeys.UnknownKey, OSError) as error:
        logger.warning("audit seals: what was remembered of the chain's head cannot be read: %s", error)
        return None


def remembered_anywhere() -> list[Anchor]:
    """Here, and in AUDIT_ANCHOR_FILE where there is one; the newest first."""
    found = [remembered()]
    if settings.AUDIT_ANCHOR_FILE:
        try:
            found.append(last_anchor(Path(settings.AUDIT_ANCHOR_FILE)))
        except (AnchorFault, sealkeys.UnknownKey, OSError) as error:
            logger.warning("audit seals: the last anchor cannot be read: %s", error)
    return sorted((one for one in found if one is not None), key=lambda one: -one.number)


def remember(seal: Mapping[str, Any]) -> None:
    """Told once the seal is committed. The file is replaced whole. What hinders it is a WARNING; sealing goes on."""
    to = path()
    part = to.with_name(f"{to.name}.{os.getpid()}")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(line_of(seal) + "\n")
        os.replace(part, to)
    except OSError as error:
        logger.warning("audit seals: the chain's head cannot be remembered in %s: %s", to.name, error.strerror)
