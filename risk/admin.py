"""Admin pages of the rooms, where Django looks for them."""

import risk.console.admin
import risk.rules.admin  # noqa: F401
