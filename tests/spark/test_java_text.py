"""Java's date patterns and regular expressions on columns, beside the JVM's own classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.settings import interpreted

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
    "YYYY-'W'ww-u W",
    "YY w GGGG YYYYYY",
]
MILLIS = [
    0, -1, 1, 86_400_000, -86_400_000, 1_356_998_400_123, 253_402_300_799_999, 253_402_300_800_000,
    -12_219_292_800_000, -12_219_292_800_001, -62_135_596_800_000, -62_135_769_600_001, 951_782_400_000,
    1_704_067_200_000, 1_703_980_800_000, 1_735_430_400_000, 1_483_142_400_000, -12_220_156_800_000,
    -62_167_219_200_000,
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
    "YYYY-'W'ww-u": ["2024-W01-1", "2025-W01-7", "2020-W53-4", "2020-W00-1", "1582-W41-1", "2024-W10-9", "24-W10-3"],
    "YY w": ["24 1", "99 52", "124 3"],
    "yyyy w EEE": ["2024 1 Mon", "2024 10 sunday", "2024 60 Fri", "2024 -1 Sat"],
    "yyyy w": ["2024 1", "2023 1", "2024 53"],
    "yyyy MM W E": ["2024 02 1 Thu", "2024 02 5 Mon", "2024 02 0 Mon"],
    "yyyy MM W": ["2024 02 1", "2024 06 3"],
    "yyyy MM F EEE": ["2024 02 1 Thu", "2024 02 -1 Mon", "2024 02 0 Mon", "2024 13 2 Wed"],
    "EEE yyyy MM F": ["Thu 2024 02 3"],
    "EEE, d MMM yyyy G": ["Mon, 5 Feb 44 BC", "Wed, 5 Feb 2024 ad", "x, 5 Feb 2024 AD"],
    "EEE MMM yyyy": ["Mon Feb 2024", "Sun Jan 1970"],
    "d w yyyy EEE": ["17 10 2024 Mon"],
    "w d yyyy": ["10 17 2024"],
    "yyyy MM dd D": ["2024 02 03 100"],
    "D yyyy MM dd": ["100 2024 02 03"],
    "u yyyy w": ["3 2024 10", "0 2024 10", "8 2024 10"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def without_compiler(spark: SparkSession) -> Iterator[None]:
    """A hundred expressions over a few rows are not worth a compiler's time."""
    with interpreted(spark):
        yield


class Names:
    """Gives columns names as a stage of a chain does, and puts them before what is selected."""

    def __init__(self) -> None:
        self.bound: list[Column] = []

    def bind(self, column: Column) -> Column:
        name = f"bound{len(self.bound)}"
        self.bound.append(column.alias(name))
        return F.col(name)

    def select(self, rows: DataFrame, *columns: Column) -> DataFrame:
        return rows.select("*", *self.bound).select(*columns)


def java_format(spark: SparkSession, pattern: str) -> Any:
    jvm: Any = spark._jvm
    found = jvm.java.text.SimpleDateFormat(pattern, jvm.java.util.Locale.US)
    found.setTimeZone(jvm.java.util.TimeZone.getTimeZone("UTC"))
    return found


def test_times_print_as_in_java(spark: SparkSession) -> None:
    """Every letter that is built, before and after the calendars changed."""
    rows = spark.createDataFrame([(one,) for one in MILLIS], "millis bigint").coalesce(1)
    found = []
    for pattern in PATTERNS:
        names = Names()
        text = format_millis(F.col("millis"), pattern, names.bind)
        found.append([row[0] for row in names.select(rows, text).collect()])

    jvm: Any = spark._jvm
    wanted = []
    formats = [java_format(spark, pattern) for pattern in PATTERNS]
    for one in MILLIS:
        date = jvm.java.util.Date(0)
        date.setTime(one)
        wanted.append([each.format(date) for each in formats])

    assert wanted == [list(texts) for texts in zip(*found, strict=True)]


def test_texts_are_read_as_in_java(spark: SparkSession) -> None:
    """Leniently: fields roll over, what follows is ignored, and what does not fit is told."""
    texts = [(text,) for text in dict.fromkeys(text for group in PARSED.values() for text in group)]
    rows = spark.createDataFrame(texts, "text string").coalesce(1)
    found = {}
    for pattern, group in PARSED.items():
        names = Names()
        parsed = parse_millis(F.col("text"), pattern, names.bind)
        read = dict(names.select(rows, F.col("text"), F.when(~parsed.failed, parsed.millis)).collect())
        found |= {(pattern, text): read[text] for text in group}

    wanted: dict[tuple[str, str], int | None] = {}
    for pattern, text in found:
        try:
            wanted[pattern, text] = java_format(spark, pattern).parse(text).getTime()
        except Py4JJavaError:
            wanted[pattern, text] = None

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


def java_replaced(spark: SparkSession, pattern: str, replacement: str, text: str) -> tuple[bool, str | None, str]:
    """Whether the whole text matches, the replaced text, and the class of what Java throws."""
    jvm: Any = spark._jvm
    matcher = jvm.java.util.regex.Pattern.compile(pattern).matcher(text)
    whole = matcher.matches()
    try:
        return whole, matcher.replaceFirst(replacement), ""
    except Py4JJavaError as error:
        return whole, None, error.java_exception.getClass().getName()
    except IllegalArgumentException:
        # PySpark translates this one.
        return whole, None, "java.lang.IllegalArgumentException"


def test_the_first_find_is_replaced_as_in_java(spark: SparkSession) -> None:
    """The whole text decides, the first find is replaced, a bad group fails."""
    wanted = {case: java_replaced(spark, *case) for case in REPLACED}

    texts = F.array(*[F.lit(text) for _, _, text in REPLACED])
    columns: list[Column] = []
    for at, (pattern, replacement, text) in enumerate(REPLACED):
        thrown = wanted[pattern, replacement, text][2]
        topic = F.col("texts")[at]
        columns.append(matches_whole(topic, pattern).alias(f"whole{at}"))
        if thrown:
            with pytest.raises(ReplacementError) as refused:
                first_replaced(topic, pattern, replacement)
            assert thrown == refused.value.exception
        replaced = F.lit(None).cast("string") if thrown else first_replaced(topic, pattern, replacement)
        columns.append(replaced.alias(f"replaced{at}"))
    row = list(spark.range(1).select(texts.alias("texts")).select(*columns).collect()[0])
    found = dict(zip(REPLACED, zip(row[::2], row[1::2], strict=True), strict=True))

    assert {case: whole for case, (whole, _, _) in wanted.items()} == {case: one[0] for case, one in found.items()}
    # The router leaves a topic alone that does not match as a whole.
    routed = [case for case, (whole, _, _) in wanted.items() if whole]
    assert {case: wanted[case][1] for case in routed} == {case: found[case][1] for case in routed}
