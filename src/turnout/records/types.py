"""Type aliases of the data path: Connect's values, columns of them, and NumPy and Arrow arrays.

Arrow publishes no type information, so that its aliases only document the type; those of NumPy and of single values are
checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from turnout.records.schema import Struct

Value: TypeAlias = "bool | int | float | str | bytes | Decimal | Struct | Sequence[Value] | Mapping[Any, Value] | None"
"""A key, a value or a field of a record; see `turnout.records.schema` for the integers and dates among them."""

DynamicValue: TypeAlias = Any
"""A value whose type is known at run time only: by the schema beside it, or by a test that no type checker follows."""

Fields: TypeAlias = Mapping[str, Any]
"""Values by name, as of a `JsonObject`, that are only read."""

Column: TypeAlias = Sequence[Any]
"""The values of one field. Their type is known from the schema at run time, and not to a type checker."""

Columns: TypeAlias = Mapping[Any, Column]
"""A column for each field by its name; schemaless maps may have names that are no texts."""

NewColumn: TypeAlias = list[Any]
"""A column that is being built."""

NewColumns: TypeAlias = dict[Any, Column]
"""Columns that are being chosen, see `Columns`."""

Entries: TypeAlias = dict[Any, Any]
"""The fields of one struct, or the entries of one map."""

Convert: TypeAlias = Callable[[Any], Any]
"""Conversion of a single value of a column."""

ConvertColumn: TypeAlias = Callable[[Column], Column]
"""Conversion of a whole column; values stay in their order."""

Mask: TypeAlias = "NDArray[np.bool_]"
"""A flag for each row."""

RowIds: TypeAlias = "NDArray[np.int64]"
"""Rows of a batch, or indices into another array."""

Offsets: TypeAlias = "NDArray[np.int64]"
"""Start of each item in a flat array, and the end of the last one."""

Codes: TypeAlias = "NDArray[np.int32]"
"""Indices into a dictionary."""

Hashes: TypeAlias = "NDArray[np.uint64]"
"""Hashes of 64 bits."""

Octets: TypeAlias = "NDArray[np.uint8]"
"""Bytes of a buffer."""

ArrowArray: TypeAlias = "pa.Array"
"""An Arrow array of any type."""

Strings: TypeAlias = "pa.StringArray"
"""An Arrow array of texts."""

Binaries: TypeAlias = "pa.BinaryArray"
"""An Arrow array of bytes."""

Structs: TypeAlias = "pa.StructArray"
"""An Arrow array of structs."""

ArrowBatch: TypeAlias = "pa.RecordBatch"
"""Arrow columns of equal length."""
