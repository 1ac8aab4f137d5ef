"""Re-exports, so that Django finds the tables of the rooms."""

import memory.core.models
import memory.erasure.models
import memory.profiles.drafts.models
import memory.profiles.models
import memory.profiles.queries.models
import memory.sessions.models  # noqa: F401
