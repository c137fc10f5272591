"""Many texts as two flat arrays, in Arrow's form: offsets, and the bytes one after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.deferred import pc
from turnout.subscriptions.index.buckets import viewed


class Texts:
    """Texts by number, with no object for each of them.

    Args:
        offsets: start of each text in *data*, and the end of the last one.
        data: UTF-8.
    """

    def __init__(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
        self.offsets = offsets
        self.data = data
        self._at = viewed(offsets)
        self._bytes = memoryview(data.data)

    @classmethod
    def of(cls, raws: Sequence[bytes]) -> Texts:
        """These texts."""
        offsets = np.zeros(len(raws) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, raws), np.int64, len(raws)), out=offsets[1:])
        return cls(offsets, np.frombuffer(b"".join(raws), np.uint8))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def raw(self, number: int) -> bytes:
        """Return a text as UTF-8."""
        return bytes(self._bytes[self._at[number] : self._at[number + 1]])

    def text(self, number: int) -> str:
        """Return a text."""
        return self.raw(number).decode("utf-8", "surrogatepass")

    def equal(self, numbers: NDArray[np.int64], raws: Sequence[bytes]) -> NDArray[np.bool_]:
        """Return True for each text that equals the one at the same index."""
        equal = pc.equal(self._take(pa.large_binary(), numbers), Texts.of(raws).arrow(pa.large_binary()))
        # `to_numpy` would import pandas too.
        bits = np.unpackbits(np.frombuffer(equal.buffers()[1], np.uint8), bitorder="little")
        return bits[equal.offset : equal.offset + len(equal)].view(np.bool_)

    def strings(self, numbers: NDArray[np.int64]) -> pa.StringArray:
        """Some texts as an Arrow array of strings."""
        return self._take(pa.large_string(), numbers).cast(pa.string())

    def _take(self, type_: pa.DataType, numbers: NDArray[np.int64]) -> pa.Array:
        return self.arrow(type_).take(integers(numbers))

    def arrow(self, type_: pa.DataType) -> pa.Array:
        """All texts as an Arrow array of a type with long offsets; nothing is copied."""
        return pa.Array.from_buffers(type_, len(self), [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)])


def integers(numbers: NDArray[np.int64]) -> pa.Int64Array:
    """Return the numbers as an Arrow array over their buffer; `pyarrow.array` would import pandas."""
    flat = np.ascontiguousarray(numbers, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(flat), [None, pa.py_buffer(flat)])
