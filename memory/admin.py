"""Admin pages of the rooms, where Django looks for them."""

import memory.core.admin
import memory.erasure.admin
import memory.profiles.admin
import memory.profiles.drafts.admin
import memory.profiles.queries.admin
import memory.sessions.admin  # noqa: F401
