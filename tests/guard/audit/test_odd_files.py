"""Exports and anchors that hold anything: one sentence, the right exit code, and the row where there is one."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st

from guard.audit.anchors import AnchorFault, last_anchor, read_anchors
from guard.audit.sealkeys import UnknownKey, ring
from tests.guard.audit.sealing import anchor, make_sealed, verify
from tests.guard.audit.test_tampering import make_export

pytestmark = pytest.mark.django_db(transaction=True)

DEEP = b"[" * 20_000


@pytest.fixture
def lines(tmp_path: Path) -> list[bytes]:
    """header, origin, 3 rows, seal, 2 rows, seal, row, seal, end."""
    make_sealed(3, 2)
    return make_export(tmp_path).read_bytes().splitlines(keepends=True)


def row_at(lines: list[bytes], place: int) -> int:
    return int(json.loads(lines[place])["row"][0])


def told_of(tmp_path: Path, content: bytes) -> dict[str, Any]:
    (tmp_path / "odd").write_bytes(content)
    return verify(export=tmp_path / "odd")


def test_a_row_taken_out_is_named(tmp_path: Path, lines: list[bytes]) -> None:
    for place in (2, 3, 6):
        told = told_of(tmp_path, b"".join(lines[:place] + lines[place + 1 :]))
        assert (told["exit"], told["first_row"]) == (1, row_at(lines, place))
    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("verify_audit", export=tmp_path / "odd", stdout=out)
    assert f"BROKEN row {row_at(lines, 6)}" in out.getvalue()
    assert "lines were taken out or put in" in out.getvalue()


def test_a_row_doubled_is_named(tmp_path: Path, lines: list[bytes]) -> None:
    for place in (2, 3, 6, 9):
        told = told_of(tmp_path, b"".join(lines[: place + 1] + lines[place:]))
        assert (told["exit"], told["first_row"]) == (1, row_at(lines, place))


@pytest.mark.parametrize("line", [
    b'{"kind":[]}', b'{"kind":{}}', b'{"kind":null}', b"null", b"[]", b"\xff\xfe\x00", DEEP, b'{"kind":"row"}',
    b'{"kind":"row","row":[77]}', b'{"kind":"row","row":' + DEEP + b"}", b'{"kind":"seal"}', b"{}", b"9" * 5000,
    b'{"kind":"seal","number":true}', b'{"kind":"seal","number":1e999}', b'{"kind":"seal","number":77,"at":[]}',
    b'{"kind":"end"}', b'{"kind":"end","key_id":[]}',
])  # fmt: skip
@pytest.mark.parametrize("place", [1, 4, -1])
def test_a_line_that_is_none(line: bytes, place: int, tmp_path: Path, lines: list[bytes]) -> None:
    told = told_of(tmp_path, b"".join(lines[:place]) + line + b"\n" + b"".join(lines[place:]))
    assert told["exit"] == 1
    assert told["findings"]


@pytest.mark.parametrize("content", [b"", b"\n", DEEP, b"\xff" * 99, b'{"kind":[]}', b"null", b'{"format":[]}'])
def test_a_file_that_is_no_export_was_not_checked(content: bytes, tmp_path: Path) -> None:
    assert told_of(tmp_path, content)["exit"] == 2


def test_an_export_of_before_there_were_links(tmp_path: Path, lines: list[bytes]) -> None:
    header = json.loads(lines[0])
    header["version"] = 1
    told = told_of(tmp_path, json.dumps(header).encode() + b"\n" + b"".join(lines[1:]))
    assert told["exit"] == 2, "its columns are others"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
FUZZ = limits(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@FUZZ
@given(data=st.data())
def test_exports_with_anything_in_any_place(data: st.DataObject, tmp_path: Path, lines: list[bytes]) -> None:
    changed = list(lines)
    place = data.draw(st.integers(1, len(lines) - 1))
    line = json.loads(lines[place])
    names = [*line, "row"] if "row" not in line else ["kind", "row"]
    name = data.draw(st.sampled_from(names))
    value = data.draw(VALUES)
    if name == "row" and "row" in line and data.draw(st.booleans()):
        line["row"][data.draw(st.integers(0, len(line["row"]) - 1))] = value
    else:
        line[name] = value
    changed[place] = json.dumps(line).encode() + b"\n"
    if json.loads(lines[place]) != json.loads(changed[place]):
        assert told_of(tmp_path, b"".join(changed))["exit"] in (1, 2)


@FUZZ
@given(data=st.data())
def test_exports_with_bytes_changed(data: st.DataObject, tmp_path: Path, lines: list[bytes]) -> None:
    whole = b"".join(lines)
    at = data.draw(st.integers(0, len(whole) - 1))
    until = data.draw(st.integers(at, min(len(whole), at + 20)))
    told = told_of(tmp_path, whole[:at] + data.draw(st.binary(max_size=20)) + whole[until:])
    assert told["exit"] in (1, 2, 3)


# --- anchors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [
    DEEP, b"\xff\xfe", b"[]", b"null", b"{}", b"9" * 3000, b'{"number":1e999}', b'"x"', b'{"v":NaN}', b"[" * 400,
])  # fmt: skip
def test_an_anchor_that_is_none(content: bytes, tmp_path: Path) -> None:
    make_sealed(1)
    path = tmp_path / "anchors"
    path.write_bytes(content + b"\n")
    told = verify(anchor=path)
    assert told["exit"] == 1
    assert "is no anchor" in told["findings"][0]["what"]
    with pytest.raises(SystemExit) as refused:
        anchor(path)
    assert refused.value.code == 1
    assert path.read_bytes() == content + b"\n"


@FUZZ
@given(change=st.dictionaries(st.sampled_from(["v", "number", "mac", "total", "at", "key_id", "signature"]), VALUES))
def test_anchors_with_anything_in_any_place(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "anchors"
    path.unlink(missing_ok=True)
    anchor(path)
    line = json.loads(path.read_text())
    path.write_text(json.dumps({**line, **change}) + "\n")
    reads: list[Callable[[], object]] = [lambda: list(read_anchors(path, ring())), lambda: last_anchor(path)]
    for read in reads:
        try:
            read()
        except (AnchorFault, UnknownKey):
            assert change
