"""Codec that registers the schemas of changed values."""

from __future__ import annotations

from abc import abstractmethod

from turnout.codecs.schema_registry.client import SchemaText
from turnout.codecs.schema_registry.codec import RegistryCodec, RegistrySchema
from turnout.codecs.schema_registry.options import RegistryOptions, Writing
from turnout.codecs.schema_registry.waiting import answered
from turnout.records import Schema


class RegisteringCodec(RegistryCodec):
    """Registry codec whose changed schemas are registered, or looked up, under their subject.

    Args:
        options: options of the registry.
        writing: subject, registration and position of ids that are written.
        schema: schema that all values are written with; None for that of each value.
    """

    def __init__(self, options: RegistryOptions, writing: Writing, schema: str | None = None) -> None:
        super().__init__(options, writing)
        self._given = None if schema is None else SchemaText(self.language, schema)
        self._converts = self._given is not None or writing.use_latest_version

    def _to_convert(self, topic: str | None) -> RegistrySchema:
        if self._given is None:
            return super()._to_convert(topic)
        return self._sent(self._given, topic)

    def _registered(self, schema: Schema, topic: str | None) -> RegistrySchema:
        before = self._as_read(schema)
        return self._sent(self._text_of(schema) if before is None else before.text, topic)

    def _sent(self, text: SchemaText, topic: str | None) -> RegistrySchema:
        """Return a schema with its id in the registry."""
        subject = self._subject(topic, self._name_of(text))
        registry = self._registry
        send = registry.register if self._writing.auto_register_schemas else registry.lookup
        return self._to_write(answered(self._options, lambda: send(subject, text)), ())

    @abstractmethod
    def _text_of(self, schema: Schema) -> SchemaText:
        """Return the definition of a Connect schema that was not read.

        Raises:
            RecordError: there is none.
        """

    @abstractmethod
    def _name_of(self, text: SchemaText) -> str | None:
        """Return the full name of a schema's record, for its subject; None where it has none."""
