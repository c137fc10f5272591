"""Removes from an environment what no route needs: ``slim.py /opt/turnout``. Prints what that was, and how much."""

import shutil
import sys
from pathlib import Path

PATTERNS = (
    "numpy/**/tests",
    "pandas/tests",
    "pyarrow/tests",
    "pyarrow/include",
    "pyarrow/src",
    "pyarrow/**/*.pxd",
    "pyarrow/**/*.pyx",
    "numpy/_core/include",
    "numpy/**/*.a",
    "pyspark/examples",
    "pyspark/data",
    "pyspark/python/test_support",
    "pyspark/**/tests",
    "**/*.pyi",
    # Spark's machine learning, graphs and Hive; and RocksDB, which queries with state of their own can be told to use.
    "pyspark/jars/breeze*",
    "pyspark/jars/cats-kernel*",
    "pyspark/jars/spire*",
    "pyspark/jars/spark-mllib*",
    "pyspark/jars/spark-graphx*",
    "pyspark/jars/hive-[!s]*",
    "pyspark/jars/hive-s[!t]*",
    "pyspark/jars/spark-hive*",
    "pyspark/jars/derby*",
    "pyspark/jars/datanucleus*",
    "pyspark/jars/rocksdbjni*",
    # Arrow's network protocol: batches here come from and go to memory.
    "pyarrow/libarrow_flight.*",
    "pyarrow/libarrow_python_flight.*",
    "pyarrow/_flight.*",
)
"""Tests, examples, what only a compiler reads, and what no route reaches, below site-packages."""


def size(path: Path) -> int:
    """Bytes of a file, or of all below a folder."""
    if path.is_dir():
        return sum(part.lstat().st_size for part in path.rglob("*") if not part.is_dir())
    return path.lstat().st_size


def slim(packages: Path) -> int:
    """Remove it, and give the bytes that it had."""
    removed = 0
    for pattern in PATTERNS:
        for path in list(packages.glob(pattern)):
            if not path.exists():
                continue
            removed += size(path)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return removed


def once(packages: Path) -> None:
    """Give slf4j's jar a name by which Spark's launcher does not know it.

    The launcher puts it before all jars, among which it is again. A JVM leaves out the second when it writes an archive
    of classes, and counts it when it compares (Java 21), so that no archive ever fits.
    """
    for jar in packages.glob("pyspark/jars/slf4j-api-*.jar"):
        jar.rename(jar.with_name(f"api-{jar.name}"))


(packages,) = Path(sys.argv[1]).glob("lib/python3.*/site-packages")
once(packages)
sys.stdout.write(f"removed {slim(packages) >> 20} MiB, {size(packages) >> 20} MiB stay\n")
