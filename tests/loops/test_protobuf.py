"""Loops over Protobuf messages: the same interpreted and compiled, and wherever the calls are divided.

That what they find is what the ``protobuf`` library finds is tested by `tests.codecs.protobuf.test_reading`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.codecs.protobuf.test_reading import _MESSAGES, codec_of
from turnout.codecs.protobuf.connect_schema import plan_of
from turnout.codecs.protobuf.descriptors import file_of
from turnout.codecs.protobuf.reading import Passer
from turnout.loops import protobuf
from turnout.loops.compiled import Loop


def run(loop: Loop[Any, Any], compiled: bool, *arguments: Any) -> Any:
    return loop.dispatcher()(*arguments) if compiled else loop.interpreted(*arguments)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Passer, Any]:
    folder = tmp_path_factory.mktemp("proto")
    codec_of(folder, 1)
    message = file_of(folder / "all1.proto").message()
    passer = Passer.of(plan_of(message), lambda _: None)
    assert passer is not None
    return passer, GetMessageClass(message)


def found(passer: Passer, texts: list[bytes], compiled: bool) -> tuple[list[Any], list[int], list[Any]]:
    """Return the offsets of the fields of each text in it, None for one that is not whole; which these are; numbers."""
    content = np.frombuffer(b"".join(texts), np.uint8)
    sizes = np.array([len(text) for text in texts], np.int64)
    ends = np.cumsum(sizes)
    places = np.zeros((len(passer._kinds) + 1, len(texts)), np.int64)
    failed = np.zeros(len(texts), np.uint8)
    wrong = run(
        protobuf.find_fields, compiled, content, ends - sizes, ends, passer._tags, passer._edges, passer._kinds,
        places.ravel(), failed,
    )  # fmt: skip
    assert wrong == failed.sum()
    numbers = []
    for at, kind in enumerate(passer._kinds.tolist()):
        chosen = (failed == 0) & (places[at + 1] > places[at])
        values = np.zeros(int(chosen.sum()), np.int64)
        head = int(passer._edges[at + 1] - passer._edges[at])
        run(protobuf.read_values, compiled, content, places[at][chosen], places[at + 1][chosen], head, kind, values)
        numbers.append(values.tolist())
    within = (places - (ends - sizes)).T.tolist()
    return [None if bad else own for own, bad in zip(within, failed.tolist(), strict=True)], failed.tolist(), numbers


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(values=_MESSAGES, data=st.data())
def test_any_bytes_give_the_same(made: tuple[Passer, Any], values: list[dict[str, Any]], data: st.DataObject) -> None:
    """Whole messages and others, in one call and each alone; nothing is found outside of a message."""
    passer, message = made
    texts = []
    for value in values[:6]:
        text = message(**value).SerializeToString()
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.sampled_from([0, 0, 1, 2]))
        texts.append(text[:at] + data.draw(st.binary(max_size=2)) + text[at + cut :])

    places, failed, numbers = found(passer, texts, compiled=True)

    assert (places, failed, numbers) == found(passer, texts, compiled=False)
    assert places == [found(passer, [text], compiled=True)[0][0] for text in texts]
    for own, text in zip(places, texts, strict=True):
        if own is not None:
            assert own == sorted(own)
            assert (own[0], own[-1]) == (0, len(text))
