"""Character n-grams of a text, hashed: what the classifier sees, the same when it learns and when it judges."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from guard.inputs.normalising import View

SIZES = (1, 2, 3, 4)  # characters of an n-gram
BITS = 17
BUCKETS = 1 << BITS
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


def buckets(view: View, size: int) -> npt.NDArray[np.uint32]:
    """The bucket of each n-gram of a size, by where it begins; as many as the view has characters, less size - 1."""
    codes = view.codes.astype(np.uint64)
    count = len(codes) - size + 1
    if count <= 0:
        return np.zeros(0, dtype=np.uint32)
    hashed = np.full(count, np.uint64(size), dtype=np.uint64)
    for offset in range(size):
        hashed = (hashed ^ codes[offset : offset + count]) * _FACTOR
    hashed ^= hashed >> np.uint64(29)
    hashed *= _MIX
    return (hashed >> np.uint64(64 - BITS)).astype(np.uint32)
