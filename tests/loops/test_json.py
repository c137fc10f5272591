"""Tests of turnout.loops.json: what is decided is JSON, and is the same interpreted, compiled and by the reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codecs.test_plain_json import FIELDS, MESSY, RICH
from tests.transforms.test_base import GUARDS, STAGES, TEXTS, batch_of, guarded, outcome, written
from turnout.codecs import Format, codec_of, parse_ddl, plain_json
from turnout.codecs.json_nodes import Misfit, json_text
from turnout.codecs.json_reading import Reader, SchemalessReader
from turnout.loops import json as loops
from turnout.records.block import rows_of
from turnout.records.spans import ArrowBytes
from turnout.transforms.chain import ChainRunner

JSON = codec_of(Format("json"))
FORMS = ("interpreted", "compiled")
LOOPS: tuple[Any, ...] = (loops.scan, loops.scan_fields, loops.write, loops.join, loops.separate)

TYPED = codec_of(Format("json", schema=RICH))
OBJECTS = st.lists(
    st.tuples(st.sampled_from([*FIELDS, "gone", "", "\\u0073", "Ä"]), MESSY, st.sampled_from(["", " ", "\n "])),
    max_size=6,
).map(
    lambda items: (
        b"{" + ",".join(f'{space}"{name}"{space}:{text}{space}' for name, text, space in items).encode() + b"}"
    )
)
"""Objects of declared fields, some of them wrong, repeated, or escaped, and of others."""


@pytest.fixture(scope="module", autouse=True)
def forms() -> Iterator[None]:
    """Loops as each test wants them; those that were in use before are in use afterwards."""
    before = [loop._run for loop in LOOPS]
    yield
    for loop, run in zip(LOOPS, before, strict=True):
        loop._run = run


def use(form: str) -> None:
    for loop in LOOPS:
        loop._run = loop.interpreted if form == "interpreted" else loop.dispatcher()


def values_of(texts: Any) -> tuple[dict[int, Any], dict[int, str]]:
    blocks, errors = plain_json.ObjectReader().read(rows_of(len(texts)), texts)
    values = {row: value for block in blocks for row, value in zip(block.rows.tolist(), block.whole(), strict=True)}
    return values, {row: str(error) for row, error in errors.items()}


def is_decided(text: bytes) -> bool:
    return not plain_json.ObjectReader()._scanned([text]).left


@given(st.lists(TEXTS.filter(lambda text: text is not None), max_size=12))
def test_values_are_those_of_the_reference(texts: list[bytes]) -> None:
    """Values, names in their order, and errors; interpreted and compiled."""
    blocks, errors = SchemalessReader().read(rows_of(len(texts)), texts)
    expected = {row: value for block in blocks for row, value in zip(block.rows.tolist(), block.whole(), strict=True)}

    for form in FORMS:
        use(form)
        values, problems = values_of(texts)
        assert repr(sorted(values.items())) == repr(sorted(expected.items()))
        assert problems == {row: str(error) for row, error in errors.items()}
        part = pa.array([b"[1]", *texts], pa.binary()).slice(1)
        assert repr((values, problems)) == repr(values_of(ArrowBytes(part)) if texts else ({}, {}))


@given(st.lists(st.one_of(OBJECTS, TEXTS.filter(lambda text: text is not None)), min_size=1, max_size=50))
def test_texts_of_arrow_are_read_and_written_as_lists_are(texts: list[bytes]) -> None:
    """By both readers; of some values or fewer the codec returns a list, of more an array."""
    column: Any = ArrowBytes(pa.array(texts, pa.binary()))
    for form in FORMS:
        use(form)
        for codec in (JSON, TYPED):
            (blocks, errors), (others, other_errors) = (
                codec.decode(rows_of(len(texts)), one) for one in (texts, column)
            )
            assert [block.rows.tolist() for block in blocks] == [block.rows.tolist() for block in others]
            assert {row: str(error) for row, error in errors.items()} == {
                row: str(error) for row, error in other_errors.items()
            }
            for block, other in zip(blocks, others, strict=True):
                one_by_one = [block.take(np.array([index])) for index in range(len(block))]
                assert written([block]) == written([other]) == written(one_by_one)


@given(st.lists(TEXTS, max_size=25), st.lists(st.tuples(STAGES, GUARDS), max_size=4))
def test_results_do_not_depend_on_how_records_are_divided(
    texts: list[bytes | None], stages: list[tuple[dict[str, Any], dict[str, Any] | None]]
) -> None:
    """One by one, in twos, and all at once: bytes and failures of a chain are the same."""
    chain = guarded(stages)
    found = []
    for form, size in (("interpreted", 1), ("compiled", 2), ("compiled", 20), ("compiled", max(len(texts), 1))):
        use(form)
        results: dict[int, object] = {}
        for start in range(0, len(texts), size):
            nothing: list[bytes | None] = [None] * start
            batch = batch_of(nothing + texts[start : start + size])
            ChainRunner(chain).apply(batch)
            both = written(batch.key), written(batch.value)
            for row in range(start, len(batch)):
                results[row] = (
                    int(batch.outcomes[row]), str(batch.failures.get(row)), [side.get(row) for side in both]
                )  # fmt: skip
        found.append(results)

    assert all(results == found[0] for results in found)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1.10,"b":12345678901234567890.5,"c":"\\u00e9\\/","d":[1.0,{"e":1,"e":2}]}',
        b' {\n"a" : 1e5 , "b" : { "c" : [ ] , "d" : { } } }\t\r\n',
        '{"ü":"Åbo","":null}'.encode(),
        b'{"a":-0,"b":-0.0,"c":true,"d":false}',
    ],
)
def test_an_object_that_nothing_changes_is_copied(form: str, text: bytes) -> None:
    """White space, the digits of numbers, and escapes are as they came."""
    use(form)
    blocks, _ = JSON.decode(rows_of(3), [text, b'{"x":1}', text])

    assert is_decided(text)
    assert {text for block in blocks for text in JSON.encode(block)} == {text, b'{"x":1}'}


@pytest.mark.parametrize("form", FORMS)
def test_fields_that_nothing_changes_are_copied(form: str) -> None:
    """A changed object has no white space between its fields; in a field it is as it came."""
    use(form)
    text = b'{"a": 1.10, "gone":0,"b" :[1 , 2],"c":"\\u00e9","d":5.0}'
    chain = guarded([({"type": "ReplaceField$Value", "exclude": "gone", "renames": "c:e"}, None)])

    assert outcome(chain, [text])[-1] == {0: b'{"a":1.10,"b":[1 , 2],"e":"\\u00e9","d":5.0}'}


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"{}", b"[]", b"null", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,', b'{"a":1,}', b'{"a":1}}',
        b'{"a":1}x',
        b'{"a":01}', b'{"a":+1}', b'{"a":.5}', b'{"a":1.}', b'{"a":1e}', b'{"a":1e999}', b'{"a":-}', b'{"a":tru}',
        b'{"a":nulls}', b'{"a":NaN}', b'{"a":"\t"}', b'{"a":"\\x"}', b'{"a":"\\u12g4"}', b'{"a":"\\ud800"}',
        b'{"a":"x}',
        b'{"a":[1,]}', b'{"a":[1}', b'{"a":{"b"}}', b'{"a":{"b":1,}}', b'{"a":{,}}', b'{"a":[,]}', b'{"a":{1:2}}',
        b'{"a":\x0b1}', b'{"a":\x001}', b'\xef\xbb\xbf{"a":1}', b'{"\\u0061":1}', b'{"a":1,"a":2}', b'{a:1}',
        b"{'a':1}",
        b'{"a":' + b"[" * 40 + b"]" * 40 + b"}", b'{"a":' + b"1" * 300 + b"}", b'{"' + b"n" * 300 + b'":1}',
        json.dumps({f"n{number}": number for number in range(2_000)}).encode(),
    ],
)  # fmt: skip
def test_what_is_no_plain_object_is_left_to_the_reference(text: bytes) -> None:
    """Whether it is wrong, or rare."""
    for form in FORMS:
        use(form)
        assert not is_decided(text)


@given(TEXTS.filter(bool), st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=2)), max_size=3))
def test_only_json_is_decided(text: bytes, edits: list[tuple[int, bytes]]) -> None:
    """Of texts with a few changed bytes, what is decided is JSON for Python's reader too, with the same value."""
    for at, piece in edits:
        text = text[: at % (len(text) + 1)] + piece + text[at % (len(text) + 1) + len(piece) // 2 :]
    use("compiled")
    values, errors = values_of([text])
    if is_decided(text) and not errors:
        assert repr(values[0]) == repr(json.loads(text.decode()))


def test_shapes_beyond_the_limit_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer with ever new names takes no more memory, and all of its objects are read."""
    begin = plain_json._Shapes.__init__

    def nearly_full(self: Any) -> None:
        begin(self)
        self.counters[loops.NODES] = loops.MAX_NODES - loops.MAX_FIELDS - 10

    monkeypatch.setattr(plain_json._Shapes, "__init__", nearly_full)
    use("compiled")
    texts = [json.dumps({f"n{number}": number, "a": 1}).encode() for number in range(50)]
    reader = plain_json.ObjectReader()
    for _ in range(2):
        blocks, errors = reader.read(rows_of(len(texts)), texts)
        found = {
            row: text for block in blocks for row, text in zip(block.rows.tolist(), JSON.encode(block), strict=True)
        }

        assert (found, errors) == (dict(enumerate(texts)), {})


@pytest.mark.parametrize("form", FORMS)
def test_values_of_any_size_are_copied(form: str) -> None:
    """Short ones by words, long ones by vectors, and what is next to them stays."""
    use(form)
    data = np.arange(1, 256, dtype=np.uint8)
    begins = np.repeat(np.array([0, 3, 100], np.int64), 155)
    ends = begins + np.tile(np.arange(155), 3)
    out = np.full(int((ends - begins).sum()) + len(begins) + 1, 255, np.uint8)

    size = loops.join(data, begins, ends, out)

    pieces = [data[begin:end].tobytes() for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    assert out[:size].tobytes() == b"[" + b",".join(pieces) + b"]"


def test_many_fields_of_few_objects_are_read() -> None:
    """The room for fields grows."""
    use("compiled")
    texts = [json.dumps({f"n{number}": number for number in range(1_000)}).encode()] * 5
    blocks, _ = JSON.decode(rows_of(5), list(texts))

    assert [text for block in blocks for text in JSON.encode(block)] == texts


def typed_values(texts: list[bytes], reader: Reader, size: int) -> list[object]:
    """The value of each text and what it is written as, or why it has none, in batches of this size."""
    found: list[object] = [None] * len(texts)
    for start in range(0, len(texts), size):
        blocks, errors = reader.read(rows_of(len(texts))[start : start + size], texts[start : start + size])
        for block in blocks:
            written = TYPED.encode(block)
            for row, value, text in zip(block.rows.tolist(), block.whole(), written, strict=True):
                found[row] = repr(value), text
        for row, error in errors.items():
            found[row] = str(error)
    return found


@given(st.lists(OBJECTS, max_size=12))
def test_typed_values_are_those_of_the_reference(texts: list[bytes]) -> None:
    """Values and errors; interpreted and compiled, and however the texts are divided."""
    reader = Reader.declared(parse_ddl(RICH))
    expected = []
    for text in texts:
        try:
            expected.append(repr(reader._node.slow(json_text(text))))
        except Misfit as misfit:
            expected.append(f"the value is not of its schema: {misfit}")

    results = []
    for form, size in (("interpreted", 1), ("compiled", 2), ("compiled", max(len(texts), 1))):
        use(form)
        results.append(typed_values(texts, reader, size))

    assert [one[0] if isinstance(one, tuple) else one for one in results[0]] == expected
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("form", FORMS)
def test_typed_fields_that_nothing_changes_are_copied(form: str) -> None:
    """Escapes are as they came; a float has the form of a double, and a field that is missing is null."""
    use(form)
    codec = codec_of(Format("json", schema="a STRING, n INT, gone INT, d DOUBLE, b BOOLEAN"))
    text = b'{ "a" : "\\u00e9\\/", "other": [1, {}], "n":-7,"b":true ,"d":1.50}'
    blocks, errors = codec.decode(rows_of(2), [text, text])

    assert errors == {}
    assert [text for block in blocks for text in codec.encode(block)] == [
        b'{"a":"\\u00e9\\/","n":-7,"gone":null,"d":1.5,"b":true}'
    ] * 2


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b"null", b'{"n":1}}', b'{"n":1', b'{"n":1,}', b'{"n":01}', b'{"n":-0}',
        b'{"n":1.0}', b'{"n":1e2}',
        b'{"n":128}', b'{"n":-129}', b'{"n":1,"n":1}', b'{"n":"1"}', b'{"n":true}', b'{"n":[]}', b'{"a":1}',
        b'{"a":"\\ud800"}',
        b'{"a":nul}', b'{"\\u0061":"x"}', b'{"a":"x","other":tru}', b'{"a":"x" "n":1}', b'{"f":"NaN"}',
        b'{"f":true}', b'{"b":0}',
        b'{"a":"\xff"}', b"{}",
    ],
)  # fmt: skip
def test_what_is_not_of_its_kind_is_left_to_the_reference(text: bytes) -> None:
    """Whether it is wrong, or rare; the last one lacks a field."""
    for form in FORMS:
        use(form)
        fields = Reader.declared(parse_ddl("n TINYINT, a STRING, f FLOAT, b BOOLEAN, must INT NOT NULL"))._fields
        assert fields is not None
        decided = text.replace(b"}", b',"must":1}', 1) if text != b"{}" else text
        assert fields.read(rows_of(1), [decided])[1] == [0]


FUZZ = """
import random
import numpy as np
from turnout.codecs import Format, codec_of, EncodeErrors
from turnout.loops import compile_loops
compile_loops()
codec, dice = codec_of(Format("json")), random.Random(1)
typed = codec_of(Format("json", schema="a DOUBLE, c STRING, d INT NOT NULL, z TINYINT, b ARRAY<STRING>"))
seeds = [b'{"a":1.5e3,"b":[{"c":"\\\\u00e9"},null],"d":"x"}', b'{"a":{"b":{}},"c":true}', b'{"":"\\\\n","z":-0}']
for _ in range(3000):
    texts = []
    for _ in range(dice.randrange(1, 6)):
        text = bytearray(dice.choice(seeds))
        for _ in range(dice.randrange(4)):
            at = dice.randrange(len(text))
            piece = [dice.choice(b'{}[]",:\\\\u019-.eE\\0\\xc3\\xff tn') for _ in range(dice.randrange(3))]
            text[at : at + dice.randrange(3)] = bytes(piece)
            text = text or bytearray(b"{")
        texts.append(bytes(text[: dice.randrange(len(text) + 1)]) if dice.random() < 0.2 else bytes(text))
    blocks, errors = codec.decode(np.arange(len(texts)), texts)
    for block in blocks:
        block.whole()
        codec.encode(block)
    for block in typed.decode(np.arange(len(texts)), texts)[0]:
        block.whole()
        typed.encode(block)
"""


@pytest.mark.heavy
def test_no_text_makes_a_loop_read_outside_of_its_buffers(tmp_path: Path) -> None:
    """With Numba's checks of bounds on, broken texts end in errors of their own."""
    environment = {**os.environ, "TURNOUT_LOOPS_CACHE": str(tmp_path), "NUMBA_BOUNDSCHECK": "1"}
    result = subprocess.run(
        [sys.executable, "-c", FUZZ], env=environment, capture_output=True, text=True, check=False, timeout=300
    )

    assert result.returncode == 0, result.stderr
