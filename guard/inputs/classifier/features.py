"""Character n-grams of a text, hashed: what the classifier sees, the same when it learns and when it judges."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

SIZES = (2, 3, 4, 5)  # characters of an n-gram
BITS = 17
BUCKETS = 1 << BITS
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_TURN, _KEEP = np.uint64(29), np.uint64(64 - BITS)


def buckets(codes: npt.NDArray[np.uint32]) -> Iterator[npt.NDArray[np.int64]]:
    """For each of SIZES the bucket of each n-gram, by where it begins: as many as there are characters, less size - 1.

    The hash of an n-gram is that of its first n - 1 characters carried on by one, so that each size costs one step.
    """
    wide = codes.astype(np.uint64)
    hashed = np.zeros(len(wide), dtype=np.uint64)
    for offset in range(min(SIZES[-1], len(wide))):
        hashed = hashed[: len(wide) - offset] ^ wide[offset:]
        hashed *= _FACTOR
        hashed ^= hashed >> _TURN
        if offset + 1 in SIZES:
            yield ((hashed * _FACTOR) >> _KEEP).astype(np.int64)
