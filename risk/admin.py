"""Admin pages of the rooms, where Django looks for them."""

import risk.calendar.admin
import risk.conduct.admin
import risk.console.admin
import risk.console.ruling.admin
import risk.notify.admin  # noqa: F401
