"""A stage for tests of sources that run one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from turnout.runtime.offsets import splits_of


class ListingStage:
    """A stage whose counts are the splits that it gets."""

    def publish(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        splits = [(options.stage, str(split)) for rows in batches for options, split in splits_of(rows)]
        yield pa.RecordBatch.from_pydict({"counts": [str(splits)]})
