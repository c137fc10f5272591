"""Remedies for common failures of Spark and of Kafka."""

from __future__ import annotations

import re
from typing import Final

_REMEDIES: Final = (
    (
        re.compile(r"failOnDataLoss|Some data may have been lost|OffsetOutOfRange|KAFKA_DATA_LOSS"),
        (
            "the records are gone from Kafka: set source.failOnDataLoss to false to go on behind them, or remove the "
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
            "timestamps, or set message.timestamp.type=LogAppendTime for the topic"
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
        re.compile(r"NotEnoughReplicas"),
        "too few replicas are in sync: wait for the brokers, or lower min.insync.replicas",
    ),
)
_MOST: Final = 200_000
"""Characters of a trace that are looked at."""


def remedy_for(trace: str) -> str | None:
    """Return the remedy for a failure, None if none is known.

    Args:
        trace: the text of the failure, its causes included.
    """
    return next((remedy for pattern, remedy in _REMEDIES if pattern.search(trace[:_MOST])), None)
