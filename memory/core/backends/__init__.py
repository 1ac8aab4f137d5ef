"""Django's database backends for the alias `core`: read only and in bounded time (see memory/core/window.py)."""
