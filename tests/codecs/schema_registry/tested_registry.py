"""Registries that the same tests run against: two stand-ins, and a server that runs already."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from tests.codecs.schema_registry.karapace_stand_in import KarapaceStandIn
from tests.codecs.schema_registry.stand_in import running_registry

from turnout.codecs import Format, codec_of
from turnout.codecs.schema_registry import RegistryCodec, RegistryOptions, SchemaRegistry, registry_of

KINDS = ("stand-in", "stand-in for Karapace", "server")
URL = "TURNOUT_REGISTRY_URL"


@dataclass
class TestedRegistry:
    """A registry that others may use as well: a test has subjects and topics of its own.

    Attributes:
        url: with user and password where the registry needs them.
        prefix: of the test's subjects and topics.
        clients: that are closed after the test.
    """

    __test__ = False

    url: str
    prefix: str = field(default_factory=lambda: f"turnout-test-{uuid4().hex[:12]}-")
    clients: list[Any] = field(default_factory=list)

    def client(self) -> SchemaRegistryClient:
        """Return a client of Confluent's."""
        made = SchemaRegistryClient({"url": self.url, "max.retries": 0})
        self.clients.append(made)
        return made

    def options(self) -> RegistryOptions:
        """Return the options of a route that uses this registry."""
        found = RegistryOptions.read({"url": self.url, "retries": 0, "wait": 0})
        self.clients.append(registry_of(found))
        return found

    def schemas(self) -> SchemaRegistry:
        """Return a client of turnout's, with no schemas yet."""
        made = SchemaRegistry(self.options())
        self.clients.append(made)
        return made

    def codec(self, format_name: str, **settings: Any) -> RegistryCodec:
        """Return a codec of values."""
        made = codec_of(Format(format_name, registry=self.options(), **settings))
        assert isinstance(made, RegistryCodec)
        return made

    def subject(self, name: str) -> str:
        """Return the test's own subject or topic of this name."""
        return self.prefix + name

    def add(self, name: str, text: str, type_: str = "AVRO", references: tuple[tuple[str, str, int], ...] = ()) -> int:
        """Register a schema under the test's subject; return its id."""
        uses = [SchemaReference(one, self.subject(subject), version) for one, subject, version in references]
        return self.client().register_schema(self.subject(name), Schema(text, type_, uses))

    def has_guids(self) -> bool:
        """Return whether schemas have GUIDs."""
        self.add("guids", '"string"')
        return self.client().get_latest_version(self.subject("guids")).guid is not None

    def close(self) -> None:
        """Delete the test's subjects, those that refer to others first, and close the clients."""
        client = self.client()
        subjects = [one for one in client.get_subjects() if one.startswith(self.prefix)]
        for subject in sorted(subjects, key=lambda one: client.get_latest_version(one).schema_id or 0, reverse=True):
            client.delete_subject(subject)
            client.delete_subject(subject, permanent=True)
        for one in self.clients:
            one.close()


@contextmanager
def opened_registry(kind: str) -> Iterator[TestedRegistry]:
    """Open a registry of one of the kinds; the test is skipped if no server is named."""
    with _url(kind) as url:
        registry = TestedRegistry(url)
        try:
            yield registry
        finally:
            registry.close()


@contextmanager
def _url(kind: str) -> Iterator[str]:
    if kind != "server":
        with running_registry(KarapaceStandIn() if kind == "stand-in for Karapace" else None) as running:
            yield running.url
        return
    url = os.environ.get(URL)
    if not url:
        pytest.skip(f"{URL} is not set: it names a registry server that runs, see docs/encodings-tests.md")
    yield url
