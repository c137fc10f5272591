"""Names of subjects, by Confluent's strategies."""

from __future__ import annotations

from turnout.errors import RecordError


def subject_of(strategy: str, topic: str | None, record: str | None, *, key: bool = False) -> str:
    """Return the subject under which a schema is registered.

    Args:
        strategy: ``topic``, ``record`` or ``topicRecord``.
        topic: that the codec's setting ``topic`` names, or of the record.
        record: full name of the schema's outermost record; None where it is another type.
        key: whether the schema is one of keys.

    Raises:
        RecordError: the strategy needs a name that is missing.

    >>> [subject_of(strategy, "flights", "air.Flight") for strategy in ("topic", "record", "topicRecord")]
    ['flights-value', 'air.Flight', 'flights-air.Flight']
    """
    if strategy != "record" and topic is None:
        raise RecordError(
            f"the schema cannot be written to the registry: the subject name strategy {strategy!r} needs the "
            "setting 'topic', or a record with one"
        )
    if strategy == "topic":
        return f"{topic}-{'key' if key else 'value'}"
    if record is None:
        raise RecordError(f"the subject name strategy {strategy!r} needs a record with a name")
    return record if strategy == "record" else f"{topic}-{record}"
