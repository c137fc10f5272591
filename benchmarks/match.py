"""Match messages with stored subscriptions: in this process, and on Spark with two cores.

Cases are ``process/MIX/DISTRIBUTION`` and ``spark/…``, ``spark-json/…`` (metadata parsed from JSON values in the same
query), and ``batch/…`` (what matching adds to a micro-batch of a thousand records). Every condition has two leaves and
every message eight keys; the matches per message are printed with each figure.
"""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.harness import Options, Result, clock
from turnout.conditions import Condition, all_of, evaluate, kiwi, not_, one_of
from turnout.subscriptions import Matcher, Snapshot, Subscription

KEYS = tuple(f"k{n}" for n in range(8))
SIZES = (1_000, 10_000, 100_000, 1_000_000)


@dataclass(frozen=True)
class World:
    """What values there are, and how often each is seen: a value is ``w<number>x<number>``."""

    values: int
    zipf: bool

    def draw(self, random_: random.Random) -> str:
        """A value; under Zipf(1), the n-th is seen 1/n as often as the first."""
        n = int(self.values ** random_.random()) - 1 if self.zipf else random_.randrange(self.values)
        return f"w{n:07d}x{n % 97}"


def condition(mix: str, world: World, random_: random.Random) -> Condition:
    """A condition of two leaves; the mix says of what kind."""
    keys = random_.sample(KEYS, 2)
    first, second = world.draw(random_), world.draw(random_)
    match mix:
        case "prefix":
            return all_of(kiwi(keys[0], first[:8] + "*"), kiwi(keys[1], second))
        case "glob":
            return all_of(kiwi(keys[0], f"*{first[2:8]}*{first[-1]}"), kiwi(keys[1], second[:8] + "?*"))
        case "partial":
            return all_of(kiwi(keys[0], first, partial=True), kiwi(keys[1], second, partial=True))
        case "negation":
            return all_of(kiwi(keys[0], first), not_(kiwi(keys[1], second)))
        case "xor":
            return one_of(kiwi(keys[0], first), kiwi(keys[1], second))
    return all_of(kiwi(keys[0], first), kiwi(keys[1], second))


MIXES = ("literal", "prefix", "glob", "partial", "negation", "xor")


def subscriptions(size: int, mix: str, world: World) -> Iterator[Subscription]:
    """As many subscriptions of the mix."""
    random_ = random.Random(size)
    for n in range(size):
        yield Subscription((f"d{n % 10}",), condition(mix, world, random_), id=f"00000000-0000-4000-8000-{n:012d}")


def messages(count: int, world: World) -> list[dict[str, str]]:
    """Messages of eight keys."""
    random_ = random.Random(7)
    return [{key: world.draw(random_) for key in KEYS} for _ in range(count)]


def cases(options: Options, where: str, mixes: tuple[str, ...]) -> Iterator[tuple[str, int, str, World]]:
    """The cases that were asked for: name, number of subscriptions, mix, world."""
    sizes = (options.size,) if options.size else SIZES[:1] if options.quick else SIZES
    for mix, zipf, size in itertools.product(mixes, (False, True), sizes):
        name = f"{where}/{mix}/{'zipf' if zipf else 'uniform'}"
        # The rarer mixes show their kind, not their growth: one size will do unless one is asked for.
        if mix != "literal" and size != sizes[min(2, len(sizes) - 1)]:
            continue
        if options.wants(name):
            yield name, size, mix, World(size, zipf)


def run(options: Options) -> list[Result]:
    """All cases; those on Spark share one session."""
    results = [in_process(name, *rest, quick=options.quick) for name, *rest in cases(options, "process", MIXES)]
    spark_cases = [
        *((case, spark_columns) for case in cases(options, "spark", MIXES)),
        *((case, spark_json) for case in cases(options, "spark-json", ("literal",))),
        *((case, micro_batch) for case in cases(options, "batch", ("literal",))),
    ]
    if spark_cases:
        results += on_spark(spark_cases, quick=options.quick)
    return results


def in_process(name: str, size: int, mix: str, world: World, *, quick: bool) -> Result:
    """Messages per second through a matcher, beside the interpreter asked about every subscription."""
    wanted = list(subscriptions(size, mix, world))
    with clock() as building:
        matcher = Matcher(wanted)
    given = messages(1_000 if quick else 20_000, world)
    with clock() as seconds:
        matched = sum(len(matcher.match(message)) for message in given)
    few = given[: max(1, 200_000 // size)]
    with clock() as plain:
        expected = sum(evaluate(one.condition, message) for message in few for one in wanted)
    assert expected == sum(len(matcher.match(message)) for message in few), "the matcher and the interpreter differ"
    rate, baseline = len(given) / seconds(), len(few) / plain()
    extra = {"matches/message": matched / len(given), "build s": building()}
    return Result(name, size, rate, "interpreter, every subscription", rate / baseline, extra)


def on_spark(work: list[tuple[tuple[str, int, str, World], Callable[..., Result]]], *, quick: bool) -> list[Result]:
    from turnout.spark.session import build_session

    spark = build_session("bench-match", master="local[2]", conf={"spark.driver.memory": "4g"})
    folder = tempfile.mkdtemp(prefix="turnout-bench-")
    try:
        return [measure(spark, folder, *case, quick=quick) for case, measure in work]
    finally:
        spark.stop()
        shutil.rmtree(folder)


def written(spark, folder: str, count: int, world: World, *, as_json: bool):
    """The messages as a Parquet file, columns or JSON texts, and not computed in the measured query."""
    from pyspark.sql import functions as F

    drawn = F.rand if not world.zipf else lambda seed: F.pow(F.lit(float(world.values)), F.rand(seed)) / world.values
    columns = []
    for seed, key in enumerate(KEYS):
        n = F.floor(drawn(seed) * world.values).cast("long")
        n = F.greatest(n - 1, F.lit(0)) if world.zipf else n
        columns.append(F.concat(F.lit("w"), F.lpad(n.cast("string"), 7, "0"), F.lit("x"), n % 97).alias(key))
    path = f"{folder}/{time.monotonic_ns()}"
    rows = spark.range(0, count, 1, 2).select(F.col("id").alias("offset"), *columns)
    if as_json:
        rows = rows.select("offset", F.to_json(F.struct(*KEYS)).alias("value"))
    rows.write.parquet(path)
    return spark.read.parquet(path)


def indexed(spark, size: int, mix: str, world: World, paths: dict[str, str], how: str = "broadcast"):
    from turnout.spark.matching import Matching

    snapshot = Snapshot(tuple(subscriptions(size, mix, world)))
    with clock() as building:
        matching = Matching(spark, snapshot, paths, how=how)
    return matching, building()


def spark_columns(
    spark, folder: str, name: str, size: int, mix: str, world: World, *, quick: bool, as_json: bool = False
) -> Result:
    """Records per second, those without a match kept; the index is broadcast in the measured query too."""
    from pyspark.sql import functions as F

    count = 20_000 if quick else 1_000_000
    matching, built = indexed(spark, size, mix, world, {key: f"value.{key}" if as_json else key for key in KEYS})
    rows = written(spark, folder, count, world, as_json=as_json)
    if as_json:
        schema = ", ".join(f"{key} string" for key in KEYS)
        rows = rows.withColumn("value", F.from_json("value", schema))
    matched = matching.match(rows)
    pairs = matched.count()
    times = []
    for _ in range(1 if quick else 3):
        with clock() as seconds:
            matching.match(rows, unmatched="keep").write.format("noop").mode("overwrite").save()
        times.append(seconds())
    rate = count / sorted(times)[len(times) // 2]
    return Result(name, size, rate, extra={"matches/message": pairs / count, "build s": built})


def spark_json(spark, folder: str, *case, quick: bool) -> Result:
    """The same with the metadata parsed from JSON values in the same query."""
    return spark_columns(spark, folder, *case, quick=quick, as_json=True)


def micro_batch(spark, folder: str, name: str, size: int, mix: str, world: World, *, quick: bool) -> Result:
    """What matching adds to a micro-batch of a thousand records, once the workers have the index."""
    paths = {key: key for key in KEYS}
    (resident, built), (joining, _) = (
        indexed(spark, size, mix, world, paths, how) for how in ("resident", "broadcast")
    )
    rows = written(spark, folder, 1_000, world, as_json=False).coalesce(2).cache()

    def median(query) -> float:
        for _ in range(3):
            query().write.format("noop").mode("overwrite").save()
        times = []
        for _ in range(3 if quick else 9):
            with clock() as seconds:
                query().write.format("noop").mode("overwrite").save()
            times.append(seconds())
        return sorted(times)[len(times) // 2]

    plain = median(lambda: rows)
    in_workers = median(lambda: resident.match(rows, unmatched="keep"))
    joined = median(lambda: joining.match(rows, unmatched="keep"))
    added = {"resident adds ms": (in_workers - plain) * 1e3, "broadcast adds ms": (joined - plain) * 1e3}
    return Result(name, size, 1_000 / in_workers, extra={**added, "build s": built})
