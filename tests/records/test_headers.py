"""Headers of a batch, by name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from turnout.records import Headers
from turnout.records.headers import headers_type

PAIRS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([b"", b"x", "Ä".encode(), b"\xff", None])), max_size=6
)


@given(st.lists(PAIRS, min_size=1, max_size=40), st.sets(st.integers(0, 39)), st.booleans(), st.booleans())
def test_column_of_the_last_headers_is_their_list(
    pairs: list[list[tuple[str, bytes | None]]], chosen: set[int], is_dropped: bool, is_appended: bool
) -> None:
    """Of some records, few headers and many, some that were removed, and some that are no UTF-8."""
    headers = Headers.of_arrow(pa.array(pairs, headers_type()))
    rows = np.array(sorted(row for row in chosen if row < len(pairs)), np.intp)
    if is_dropped:
        headers.drop(["a"], rows[::2])
    if is_appended:
        headers.append(rows[1::2], "b", None, ["new"] * len(rows[1::2]))

    for name in ("a", "b", "absent"):
        last = headers.last(name)
        assert list(headers.last_column(name, rows)) == [last[row] for row in rows.tolist()]
