"""Arrow without pandas, for processes that have no use for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _PandasBlocker:
    """Import finder that hides pandas."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse pandas, and leave other modules to other finders."""
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=name)
        return None


def block_pandas_import() -> None:
    """Make Arrow treat pandas as not installed, in this process and in processes forked from it.

    To make an array of a list Arrow checks whether the list is one of pandas's, and imports pandas for the question:
    half a second of processor time in each process. It checks once. For processes of our own alone: Arrow's result is
    final, and frames of pandas can no longer be made.
    """
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    absent = _PandasBlocker()
    sys.meta_path.insert(0, absent)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(absent)
