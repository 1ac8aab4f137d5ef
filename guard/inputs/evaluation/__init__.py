"""How well the guard judges: labelled sets of our own, what is measured on them, and what is to be reached."""
