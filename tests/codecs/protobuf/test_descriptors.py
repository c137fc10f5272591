"""Files and texts of schemas."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from tests.codecs.protobuf.schemas import WIDE

from turnout.codecs.protobuf import descriptors
from turnout.codecs.protobuf.descriptors import file_of, text_of_registry
from turnout.errors import MissingExtraError


def test_a_file_and_its_descriptor_set_say_the_same(tmp_path: Path) -> None:
    """Imports are found beside the file."""
    (tmp_path / "city.proto").write_text('syntax = "proto3"; package p; message City {string name = 1;}')
    text = 'syntax = "proto3"; package p; import "city.proto"; message Trip {City from = 1;} message Other {}'
    (tmp_path / "trip.proto").write_text(text)

    compiled = file_of(tmp_path / "trip.proto")
    files = [FileDescriptorProto(), FileDescriptorProto()]
    compiled.pool.FindFileByName("city.proto").CopyToProto(files[0])
    compiled.descriptor.CopyToProto(files[1])
    (tmp_path / "trip.desc").write_bytes(FileDescriptorSet(file=files).SerializeToString())

    for file in (compiled, file_of(tmp_path / "trip.desc")):
        assert file.message().full_name == "p.Trip"
        assert file.message().fields_by_name["from"].message_type.full_name == "p.City"
        assert [file.message_at([index]).full_name for index in range(2)] == ["p.Trip", "p.Other"]


def test_indexes_lead_to_messages() -> None:
    """They are counted as by Confluent's serializers: the entries of maps are not messages."""
    file = text_of_registry(WIDE)

    assert [file.message_at(indexes).full_name for indexes in ([0], [0, 0], [1], [1, 0], [1, 1])] == [
        "shop.Order",
        "shop.Order.Line",
        "shop.Other",
        "shop.Other.Deep",
        "shop.Other.Deeper",
    ]
    assert file.message_at([1, 1]).full_name == "shop.Other.Deeper"
    assert file.indexes_of(file.message("shop.Other.Deeper")) == (1, 1)
    for indexes in ([2], [0, 1], [-1], []):
        with pytest.raises(ValueError):
            file.message_at(indexes)


@pytest.mark.parametrize(
    ("text", "references", "about"),
    [
        ("message A {B b = 1;}", (), '"B" is not defined'),
        ('import "there.proto"; message A {}', (), "there.proto"),
        ("message A {}", (("../there.proto", ""),), "expected the name of an imported file, found '../there.proto'"),
        ("message A {}", (("/etc/there.proto", ""),), "expected the name of an imported file"),
        ("//" + "x" * descriptors.MAX_TEXT, (), "at most 4,194,304 characters"),
        ("message A {" * 200 + "}" * 200, (), "cannot be compiled"),
    ],
)
def test_a_text_that_is_no_schema_is_refused(text: str, references: tuple[tuple[str, str], ...], about: str) -> None:
    """With what protoc says, and without names of folders."""
    with pytest.raises(ValueError) as refused:
        text_of_registry(f'syntax = "proto3"; {text}', references)

    assert about in str(refused.value)
    assert "turnout-proto-" not in str(refused.value)


def test_references_are_found_by_the_names_of_their_imports() -> None:
    """The names may have any folders."""
    reference = ("a/b/city.proto", 'syntax = "proto3"; message City {string name = 1;}')

    file = text_of_registry('syntax = "proto3"; import "a/b/city.proto"; message Trip {City to = 1;}', (reference,))

    assert file.message().fields_by_name["to"].message_type.name == "City"


@pytest.mark.parametrize(
    ("content", "about"),
    [
        (b"\xff", "expected a descriptor set"),
        (b"", "found none"),
        (
            FileDescriptorSet(file=[FileDescriptorProto(name="a", dependency=["b"])]).SerializeToString(),
            "--include_imports",
        ),
        (FileDescriptorSet(file=[FileDescriptorProto(name="a")]).SerializeToString(), "expected a message in a"),
    ],
)
def test_a_file_that_is_no_descriptor_set_is_refused(tmp_path: Path, content: bytes, about: str) -> None:
    """It says what is missing."""
    (tmp_path / "x.desc").write_bytes(content)

    with pytest.raises(ValueError, match=about):
        file_of(tmp_path / "x.desc").message()


def test_an_unknown_message_is_named() -> None:
    """With those that there are."""
    with pytest.raises(ValueError, match=r"no message 'shop\.Ordr'.*there are shop\.Order, shop\.Other"):
        text_of_registry(WIDE).message("shop.Ordr")


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra that brings it."""
    (tmp_path / "a.proto").write_text('syntax = "proto3"; message A {}')
    monkeypatch.setattr(descriptors, "find_spec", lambda name: None)

    with pytest.raises(MissingExtraError, match=r"turnout\[protobuf\]"):
        file_of(tmp_path / "a.proto")
