"""Java's date patterns and regular expressions on columns, beside the JVM's own classes."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from turnout.spark.java_regex import ReplacementError, first_replaced, matches_whole
from turnout.spark.java_time import format_millis, parse_millis

PATTERNS = [
    "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",
    "yyyyMMdd",
    "yy/M/d h:mm a",
    "EEE, d MMM yyyy HH:mm:ss Z",
    "EEEE MMMM dd, yyyy G",
    "D kk K X XXX z",
    "'o''clock' HH SSSSSS u F",
]
MILLIS = [
    0, -1, 1, 86_400_000, -86_400_000, 1_356_998_400_123, 253_402_300_799_999, 253_402_300_800_000,
    -12_219_292_800_000, -12_219_292_800_001, -62_135_596_800_000, -62_135_769_600_001, 951_782_400_000,
]  # fmt: skip
PARSED = {
    "yyyy-MM-dd HH:mm:ss": [
        "2013-01-01 05:00:00", "2013-13-45 25:61:61", " 2013- 1-1 5:0:0 and more", "1500-02-29 00:00:00", "x", "",
        "2013-01-01", "-5-01-01 00:00:00", "12013-01-01 00:00:00",
    ],
    "yyyyMMdd": ["20130101", "2013011", "201301", "20131345xx"],
    "d MMM yyyy": ["3 jan 2014", "3 January 2014", "03 Foo 2014"],
    "yyyy-MM-dd'T'HH:mm:ss.SSSX": ["2013-01-01T00:00:00.5Z", "2013-01-01T00:00:00.123456+02", "2013-01-01T00:00:00.1"],
    "yyyy-MM-dd HH:mm Z": ["2013-01-01 00:00 +0130", "2013-01-01 00:00 -0800", "2013-01-01 00:00 GMT"],
    "yyyy D": ["2012 366", "2013 366"],
    "h:mm a": ["12:30 am", "12:30 PM", "1:05 pm"],
}  # fmt: skip


def java_format(spark: SparkSession, pattern: str) -> Any:
    jvm: Any = spark._jvm
    found = jvm.java.text.SimpleDateFormat(pattern, jvm.java.util.Locale.US)
    found.setTimeZone(jvm.java.util.TimeZone.getTimeZone("UTC"))
    return found


def test_times_print_as_in_java(spark: SparkSession) -> None:
    """Every letter that is built, before and after the calendars changed."""
    rows = spark.createDataFrame([(one,) for one in MILLIS], "millis bigint").coalesce(1)
    found = rows.select(*[format_millis(F.col("millis"), pattern) for pattern in PATTERNS]).collect()

    jvm: Any = spark._jvm
    wanted = []
    formats = [java_format(spark, pattern) for pattern in PATTERNS]
    for one in MILLIS:
        date = jvm.java.util.Date(0)
        date.setTime(one)
        wanted.append([each.format(date) for each in formats])

    assert wanted == [list(row) for row in found]


@pytest.mark.parametrize("pattern", PARSED)
def test_texts_are_read_as_in_java(spark: SparkSession, pattern: str) -> None:
    """Leniently: fields roll over, what follows is ignored, and what does not fit is told."""
    rows = spark.createDataFrame([(text,) for text in PARSED[pattern]], "text string").coalesce(1)
    parsed = parse_millis(F.col("text"), pattern)
    found = [
        None if row["failed"] else row["millis"]
        for row in rows.select(parsed.millis.alias("millis"), parsed.failed.alias("failed")).collect()
    ]

    wanted = []
    for text in PARSED[pattern]:
        try:
            wanted.append(java_format(spark, pattern).parse(text).getTime())
        except Py4JJavaError:
            wanted.append(None)

    assert wanted == found


REPLACED = [
    ("a|ab", "X", "ab"),
    ("(.*?)", "x-$1", "foo"),
    ("(\\w+)\\.(\\w+)", "$2.$1", "a.b"),
    ("(?<first>\\w+)-(.*)", "${first}\\$$2", "x-y"),
    ("(a)(b)?(.*)", "[$2$12]", "azz"),
    ("(a)\\1.*", "$1", "aab"),
    ("x.y", "Q", "x\ny"),
    ("orders(?=-eu).*", "e", "orders-eu"),
    ("(a)", "$3", "a"),
    ("(a)", "${no}", "a"),
    ("a", "\\", "a"),
]


@pytest.mark.parametrize(("pattern", "replacement", "text"), REPLACED)
def test_the_first_find_is_replaced_as_in_java(spark: SparkSession, pattern: str, replacement: str, text: str) -> None:
    """The whole text decides, the first find is replaced, a bad group fails."""
    jvm: Any = spark._jvm
    matcher = jvm.java.util.regex.Pattern.compile(pattern).matcher(text)
    rows = spark.createDataFrame([(text,)], "text string")

    whole = rows.select(matches_whole(F.col("text"), pattern)).collect()[0][0]
    assert matcher.matches() == whole
    try:
        wanted, thrown = matcher.replaceFirst(replacement), None
    except Py4JJavaError as error:
        wanted, thrown = None, error.java_exception.getClass().getName()
    except IllegalArgumentException:
        # PySpark translates this one.
        wanted, thrown = None, "java.lang.IllegalArgumentException"
    if thrown is not None:
        with pytest.raises(ReplacementError) as refused:
            first_replaced(F.col("text"), pattern, replacement)
        assert thrown == refused.value.exception
        return
    if not whole:
        # The router leaves such a topic alone.
        return
    assert wanted == rows.select(first_replaced(F.col("text"), pattern, replacement)).collect()[0][0]
