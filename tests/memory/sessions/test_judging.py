"""Which numbers are lost, and which were never given: the judgement itself, on made-up histories."""

from __future__ import annotations

from hypothesis import given as examples
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from memory.sessions.judging import Lease, Numbers, judge


@hypothesis_settings(max_examples=200, deadline=None)
@examples(st.data())
def test_every_number_is_judged_rightly(data: st.DataObject) -> None:
    """Made-up histories of ranges and appends past Redis: what was given and vanished is exactly what is lost."""
    size = 8
    first = start = data.draw(st.integers(1, 50))  # a fork's own numbers begin above what it shares
    present: list[int] = []
    queued: list[int] = []
    lost: list[int] = []
    leases: list[Lease] = []
    for _ in range(data.draw(st.integers(1, 4))):
        used = data.draw(st.integers(0, size))
        seen = data.draw(st.booleans())
        alive = 0
        for seq in range(start, start + used):
            fate = data.draw(st.sampled_from(["stored", "queued", "lost"]))
            {"stored": present, "queued": queued, "lost": lost}[fate].append(seq)
            alive = seq if fate != "lost" else alive
        known = start + used - 1 if seen and used else 0
        if not known:  # nobody knows that what comes after the last survivor was ever given
            lost = [seq for seq in lost if seq < start or seq <= alive]
        leases.append(Lease(start, start + size - 1, known, data.draw(st.sampled_from(["outage", "restarted"]))))
        start += size
        for _ in range(data.draw(st.integers(0, 3))):  # past Redis: in no range, so it was given whatever became of it
            (present if data.draw(st.booleans()) else lost).append(start)
            start += 1
    verdict = judge(Numbers([(seq, seq) for seq in present], queued, leases, start=first, ceiling=start - 1))
    assert [seq for low, high in verdict.lost for seq in range(low, high + 1)] == lost
    explained = {seq for (low, high), _ in verdict.explained for seq in range(low, high + 1)}
    assert not explained & {*present, *queued, *lost}
    top = max([*present, *queued, *lost], default=0)
    assert {*present, *queued, *lost} | explained >= set(range(first, top + 1))
