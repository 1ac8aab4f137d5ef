"""Colours of the console are readable in both themes (WCAG 2.2: text 4.5:1, borders of controls and focus 3:1)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOKENS = Path(__file__).parents[3] / "templates" / "static" / "xinghuo" / "tokens.css"
GROUNDS = ("surface", "surface-2", "ground")
ON_SOFT = ("critical", "high", "medium", "low", "good", "accent")


def themes() -> dict[str, dict[str, str]]:
    text = TOKENS.read_text()
    found = {}
    for name, start in (("light", ":root,\n"), ("auto", ":root:not("), ("dark", 'html[data-theme="dark"] {')):
        block = text[text.index(start) :]
        found[name] = dict(re.findall(r"--x-([a-z0-9-]+): (#[0-9a-f]{6});", block[: block.index("}")]))
    return found


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "auto", "dark"])
def test_everything_can_be_read(theme: str) -> None:
    token = themes()[theme]
    text = [(ink, ground) for ink in ("ink", "ink-2", "ink-3", "accent", "critical") for ground in (*GROUNDS, "new")]
    text += [(name, f"{name}-soft") for name in ON_SOFT]
    text += [("ink", f"{name}-soft") for name in ON_SOFT]
    text += [("accent-ink", "accent"), ("accent-ink", "accent-hover"), ("brand-ink", "brand"), ("brand-soft", "brand")]
    poor = {pair: round(contrast(token[pair[0]], token[pair[1]]), 2) for pair in text}
    assert {pair: ratio for pair, ratio in poor.items() if ratio < 4.5} == {}
    edges = [(edge, ground) for edge in ("line-strong", "focus") for ground in GROUNDS]
    edges += [(f"c{number}", "surface") for number in range(1, 8)]  # slices of a picture
    poor = {pair: round(contrast(token[pair[0]], token[pair[1]]), 2) for pair in edges}
    assert {pair: ratio for pair, ratio in poor.items() if ratio < 3} == {}


def test_the_dark_theme_is_the_same_by_switch_and_by_system() -> None:
    found = themes()
    assert found["auto"] == found["dark"]
    assert found["light"].keys() == found["dark"].keys()
