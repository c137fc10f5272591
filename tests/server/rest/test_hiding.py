"""Texts of routes without their secrets."""

from __future__ import annotations

import pytest

from turnout.server.rest.hiding import without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password: hunter2", "password: ***"),
        ("  token: 'a b'  # mine", "  token: ***  # mine"),
        ('{user: ann, password: "x, y", window: 5}', "{user: ann, password: ***, window: 5}"),
        ("nkeySeed: SUABC\nstream: S", "nkeySeed: ***\nstream: S"),
        ('"kafka.ssl.key.password": geheim', '"kafka.ssl.key.password": ***'),
        ("password: ${PASSWORD}", "password: ${PASSWORD}"),
        ("servers: [nats://ann:pw@a:4222, 'nats://tok@b']", "servers: [nats://***@a:4222, 'nats://***@b']"),
        ("key: {format: json}", "key: {format: json}"),
        ("store: mongodb://u:p@db/x", "store: mongodb://***@db/x"),
    ],
)
def test_secrets_are_masked_and_nothing_else_is(text: str, shown: str) -> None:
    """In blocks and in lines, quoted or not; a variable is no secret."""
    assert without_secrets(text) == shown


def test_secrets_over_several_lines_are_masked() -> None:
    """A block of text, and a value on the next line."""
    assert "hunter2" not in without_secrets("password: |\n  hunter2\nstream: S")
    assert "hunter2" not in without_secrets("password:\n  hunter2\nstream: S")
    assert "hunter2" not in without_secrets("password: >-\n  a\n  hunter2\n")
    assert "stream: S" in without_secrets("password: |\n  hunter2\nstream: S")


def test_what_is_not_yaml_is_not_shown() -> None:
    """Nobody knows where a secret ends in it; nothing else needs to be hidden of an empty one."""
    assert "hunter2" not in without_secrets("password: [hunter2\n")
    assert without_secrets("") == ""
    assert without_secrets("a: &a {password: x, b: *a}\n").startswith("# This is not YAML")
    assert without_secrets("a: &a x\npassword: *a\ntoken: *a\n") == "a: ***\npassword: *a\ntoken: *a\n"
