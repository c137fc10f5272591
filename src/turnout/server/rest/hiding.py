"""Text of a route without its secrets, for callers that may read it but not write it."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from turnout.base.yaml_values import compose
from turnout.secrets import is_secret, masked_url

_MASK = "***"
_HIDDEN = "# This is not YAML: only callers who may write it can read it.\n"


def without_secrets(text: str) -> str:
    """Replace passwords, tokens and seeds by ``***``, and in URLs the part before the @.

    >>> without_secrets('sink: {servers: "nats://ann:pw@a", password: open sesame, window: 5}')
    'sink: {servers: "nats://***@a", password: ***, window: 5}'
    """
    try:
        # The value of an alias is at its anchor.
        spans = sorted(set(_secrets(compose(text))), reverse=True)
    except yaml.YAMLError:
        return _HIDDEN
    for begin, end in spans:
        # The end of a block of text is the beginning of the next line.
        rest = text[begin:end]
        text = text[:begin] + _MASK + rest[len(rest.rstrip()) :] + text[end:]
    return masked_url(text)


def _secrets(node: yaml.Node | None) -> Iterator[tuple[int, int]]:
    """Yield the start and end of the values of secret names; variables are no secrets."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _secrets(item)
    if not isinstance(node, yaml.MappingNode):
        return
    for name, value in node.value:
        variable = isinstance(value, yaml.ScalarNode) and value.value.startswith("${")
        if isinstance(name, yaml.ScalarNode) and is_secret(name.value) and not variable:
            yield value.start_mark.index, value.end_mark.index
        else:
            yield from _secrets(value)
