"""What the classifier says of a text: one number a window, from prefix sums. numpy alone."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from guard.inputs.classifier.features import SIZES, buckets
from guard.inputs.normalising import Layers, View

PATH = Path(__file__).with_name("weights.npz")
RULE = "classifier"
WINDOW, STEP = 256, 64  # characters: an order that stands in a long document is seen by itself
_BLOCK = 1 << 14  # characters that are hashed at once, so that arrays stay in the cache
# The weight of a rule at the two margins that training chose, and the least and the most it can be.
AT_FLAG, AT_BLOCK, LEAST, MOST = 40, 65, 30, 85
CODED = 10  # what was hidden in code weighs more, as it does for rules
MOST_SPANS = 50
HAN = (0x3400, 0xA000)
MOSTLY = 0.3  # the share of Chinese characters from which a window is Chinese

Floats = npt.NDArray[np.float64]


class Scored(NamedTuple):
    """probability: of the likeliest window. spans: `(start, end, weight)` in the text as sent, weight from LEAST on."""

    probability: float
    spans: list[tuple[int, int, int]]


class Windows(NamedTuple):
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    margins: Floats
    chinese: npt.NDArray[np.int64]  # 0 or 1


@dataclass(frozen=True)
class Model:
    """flag, block: the margins at which a text is to be flagged and blocked, `[other scripts, Chinese]`.

    slope, offset: probability = 1 / (1 + exp(-(slope * margin + offset))), as fitted out of fold.
    """

    weights: npt.NDArray[np.float32]
    bias: float
    flag: Floats
    block: Floats
    slope: float = 1.0
    offset: float = 0.0
    hash: str = ""

    def windows(self, view: View) -> Windows:
        """Each window of a view with its margin; a short text is one."""
        codes, size = view.codes, len(view)
        sums = np.zeros(size + 1)
        for at in range(0, size, _BLOCK):
            part = codes[at : at + _BLOCK + SIZES[-1] - 1]
            each = np.zeros(min(_BLOCK, size - at), dtype=np.float32)
            for found in buckets(part):
                here = found[: len(each)]
                each[: len(here)] += self.weights[here]
            np.cumsum(each, dtype=np.float64, out=sums[at + 1 : at + 1 + len(each)])
            sums[at + 1 : at + 1 + len(each)] += sums[at]
        han = np.concatenate(([0], np.cumsum((codes >= HAN[0]) & (codes < HAN[1]))))
        starts = np.arange(0, max(1, size - WINDOW + STEP), STEP)
        ends = np.minimum(starts + WINDOW, size)
        lengths = np.maximum(1, ends - starts)
        margins = (sums[ends] - sums[starts]) / np.sqrt(lengths) + self.bias
        return Windows(starts, ends, margins, ((han[ends] - han[starts]) >= MOSTLY * lengths).astype(np.int64))

    def weight(self, windows: Windows) -> npt.NDArray[np.int64]:
        """What each window counts for, as a rule does."""
        flag, block = self.flag[windows.chinese], self.block[windows.chinese]
        found = AT_FLAG + (windows.margins - flag) * (AT_BLOCK - AT_FLAG) / (block - flag)
        return np.clip(np.floor(found), 0, MOST).astype(np.int64)

    def score(self, layers: Layers) -> Scored:
        best, spans = -np.inf, []
        for layer in layers.layers:
            view = layer.together
            if len(view) < SIZES[0]:
                continue
            windows = self.windows(view)
            best = max(best, float(windows.margins.max()))
            weights = self.weight(windows)
            seen = np.flatnonzero(weights >= LEAST)
            # windows that touch are one span, which counts for the heaviest of them
            breaks = np.flatnonzero(windows.starts[seen][1:] > windows.ends[seen][:-1]) + 1
            for group in np.split(seen, breaks)[:MOST_SPANS] if len(seen) else ():
                start, end = int(windows.starts[group[0]]), int(windows.ends[group[-1]])
                extra = CODED if layer.kinds else 0
                place = layer.in_original(*view.span(start, end))
                spans.append((*place, min(100, int(weights[group].max()) + extra)))
        exponent = float(np.clip(-(self.slope * best + self.offset), -50, 50))
        return Scored(0.0 if best == -np.inf else 1 / (1 + float(np.exp(exponent))), sorted(spans))


@cache
def model() -> Model:
    """The weights in force in this process, 0.5 MB, read once."""
    raw = PATH.read_bytes()
    stored: Any = np.load(PATH)
    return Model(
        weights=stored["weights"].astype(np.float32), bias=float(stored["bias"]),
        flag=stored["flag"].astype(np.float64), block=stored["block"].astype(np.float64),
        slope=float(stored["slope"]), offset=float(stored["offset"]), hash=hashlib.sha256(raw).hexdigest()[:12],
    )  # fmt: skip


def score(layers: Layers) -> Scored:
    """What the classifier in force says. Cost: some 20 ns a character of Chinese."""
    return model().score(layers)
