"""Messages of Java's and Spark's exceptions without the text around them, and remedies for common failures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from turnout.errors import RunError

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
        re.compile(r"NoAuthWithAWSException|No AWS Credentials provided|NoAwsCredentials"),
        (
            "no credentials for S3 were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "spark.hadoop.fs.s3a.… under spark in the route"
        ),
    ),
    (
        re.compile(r"LoginException: java\.lang\.NullPointerException|invalid null input: name"),
        (
            "the process's user has no entry in /etc/passwd, which Hadoop's login needs: add one for its uid, or run "
            "as a user that has one"
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
