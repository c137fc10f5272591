"""Arrow in processes that have no use for pandas."""

from __future__ import annotations

import subprocess
import sys


def test_arrays_are_made_without_pandas() -> None:
    """Afterwards pandas can be imported as usual."""
    code = (
        "import sys, pyarrow as pa; from turnout.base.startup import block_pandas_import; block_pandas_import(); "
        "made = pa.array(['a', None]).to_pylist(); print(made, 'pandas' in sys.modules); "
        "import pandas; print(pandas.NA)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["['a', None] False", "<NA>"]
