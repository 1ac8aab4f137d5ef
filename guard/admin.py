"""Admin pages of the rooms, where Django looks for them."""

import guard.access.admin
import guard.admission.admin
import guard.audit.admin  # noqa: F401
