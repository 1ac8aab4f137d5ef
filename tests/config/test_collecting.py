"""The search for cycles stands still while somebody works, and goes on after the last of them."""

from __future__ import annotations

import gc

import pytest

from config.base.collecting import without_collecting


def test_it_goes_on_after_the_last_block_and_after_an_error() -> None:
    assert gc.isenabled()
    with without_collecting():
        with pytest.raises(ZeroDivisionError), without_collecting():
            raise ZeroDivisionError
        assert not gc.isenabled()
    assert gc.isenabled()


def test_where_it_was_off_it_stays_off() -> None:
    gc.disable()
    try:
        with without_collecting():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
