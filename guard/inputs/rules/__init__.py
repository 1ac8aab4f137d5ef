"""Rules about attacks: a readable file of expressions, and the one pass that finds which of them hit."""

from guard.inputs.rules.book import Book, Rule, book
from guard.inputs.rules.looking import attacks

__all__ = ["Book", "Rule", "attacks", "book"]
