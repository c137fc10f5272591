from __future__ import annotations

import pytest
from tests.kafka.test_producer import refusing

from turnout.errors import StreamError
from turnout.kafka.admin import KafkaAdmin
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer, partition_of
from turnout.runtime.kafka.publisher import CONFIG, Note, Slot, find_note

pytestmark = pytest.mark.kafka


def note(options: KafkaOptions, slot: Slot, split: str, *, commit: bool) -> None:
    with KafkaProducer(options, slot.key) as producer:
        producer.begin()
        number = partition_of(slot.key.encode(), 2)
        text = Note(slot.batch, split, {"read": 5}).encode()
        producer.publish(KafkaMessages(["control"], [text], [slot.key.encode()], partitions=[number]), refusing)
        producer.flush()
        producer.commit() if commit else producer.abort()


def test_notes(options: KafkaOptions) -> None:
    """A note is found if it is committed, of this micro-batch and split; others of its query do not matter."""
    with KafkaAdmin(options) as admin:
        admin.create_topic("control", 2, CONFIG)
    slot = Slot("q", 7, 0)

    assert find_note(options, "control", slot, "a[0, 9)") is None
    note(options, slot, "a[0, 9)", commit=False)
    assert find_note(options, "control", slot, "a[0, 9)") is None
    note(options, Slot("q", 7, 1), "a[9, 20)", commit=True)
    note(options, slot, "a[0, 9)", commit=True)
    found = find_note(options, "control", slot, "a[0, 9)")
    assert found is not None
    assert found.counts == {"read": 5}
    assert find_note(options, "control", Slot("q", 8, 0), "a[9, 12)") is None


def test_notes_that_do_not_fit(options: KafkaOptions) -> None:
    """Another plan, a checkpoint that was set back, and a record that is no note end the task with the reason."""
    with KafkaAdmin(options) as admin:
        admin.create_topic("control.other", 1, CONFIG)
    with KafkaProducer(options) as producer:
        slot = Slot("r", 7, 0)
        text = Note(7, "a[0, 9)", {}).encode()
        messages = KafkaMessages(["control.other"] * 2, [text, b"5"], [slot.key.encode(), b"turnout.s.0"])
        producer.publish(messages, refusing)
        producer.flush()

    with pytest.raises(StreamError, match=r"planned otherwise .* a\[0, 9\) is committed, and now it is a\[0, 5\)"):
        find_note(options, "control.other", slot, "a[0, 5)")
    with pytest.raises(StreamError, match="the checkpoint was set back"):
        find_note(options, "control.other", Slot("r", 6, 0), "a[0, 9)")
    with pytest.raises(StreamError, match="no note of turnout's"):
        find_note(options, "control.other", Slot("s", 6, 0), "a[0, 9)")
