"""Groups of objects with the same names."""

from __future__ import annotations

from tests.codecs.blocks import blocks_of, codec

from turnout.codecs.plain_json import SMALL

JSON = codec(format="json")


def test_values_are_grouped_by_their_names() -> None:
    """Many objects with the same names in the same order are one block, rare ones a mixed one; others plain or null."""
    texts = ['{"a":1,"b":2}', "1", '{"b":2,"a":1}', None, '{"a":3,"b":4}', '"x"', '{"c":5}']
    blocks, _ = blocks_of(JSON, *texts, *['{"a":6,"b":7}'] * SMALL)

    found = {block.kind: block for block in blocks}
    assert {kind: block.rows.tolist() for kind, block in found.items()} == {
        "object": [0, 4, *range(len(texts), len(texts) + SMALL)],
        "mixed": [2, 6],
        "plain": [1, 5],
        "null": [3],
    }
    columns = {name: list(column)[:3] for name, column in found["object"].columns.items()}
    assert columns == {"a": [1, 3, 6], "b": [2, 4, 7]}
    assert found["mixed"].whole() == [{"b": 2, "a": 1}, {"c": 5}]
