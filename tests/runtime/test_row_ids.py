"""Message ids of a task's rows, and the comparison of several tasks."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.runtime.nats.sink import IdSample, TaskIds

batches = st.lists(st.lists(st.none() | st.sampled_from([b"", b"a", b"b", b"c", b"a:1"]), max_size=12), max_size=6)


def task(parts: Sequence[Sequence[bytes | None]], *, distinct: bool) -> tuple[list[bytes | None], IdSample]:
    ids = TaskIds(distinct=distinct)
    written = [id_ for part in parts for id_ in ids.add(pa.array(part, pa.binary())).to_pylist()]
    return written, pickle.loads(pickle.dumps(ids.sample()))


@given(batches)
def test_the_first_row_keeps_an_id(parts: list[list[bytes | None]]) -> None:
    """Each further row has its number in the task added; rows without an id have none."""
    given_ids = [id_ for part in parts for id_ in part]
    seen: set[bytes] = set()
    expected = []
    for number, id_ in enumerate(given_ids):
        expected.append(b"%b:%d" % (id_, number) if id_ and id_ in seen else id_)
        seen.add(id_ or b"")

    assert task(parts, distinct=True)[0] == expected
    kept, sample = task(parts, distinct=False)
    assert kept == given_ids
    present = [id_ for id_ in given_ids if id_]
    assert sample.repeats == (len(present) > len(set(present)))


@pytest.mark.parametrize("count", [400, 3_000, 100_000])
def test_tasks_with_equal_ids(count: int) -> None:
    """Samples of tasks of very different sizes have equal ids where many are equal, and none where none are."""
    one, two, three = ([b"%d:%d" % (part, n) for n in range(size)] for part, size in enumerate((count, 10, 50_000)))
    samples = [task([ids], distinct=True)[1] for ids in (one, two, three)]

    assert not IdSample.have_equal(samples)
    assert IdSample.have_equal([*samples, task([one], distinct=True)[1]])
    assert not IdSample.have_equal([])


def test_small_tasks_with_one_equal_id() -> None:
    """Up to a few hundred rows in each task, the comparison is exact."""
    samples = [task([[b"%d:%d" % (part, n) for n in range(300)]], distinct=True)[1] for part in range(20)]

    assert not IdSample.have_equal(samples)
    assert IdSample.have_equal([*samples, task([[b"7:299"]], distinct=True)[1]])
