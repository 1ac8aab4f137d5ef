"""SQL of analyst agents: judged, run within one tenant, and written down."""
