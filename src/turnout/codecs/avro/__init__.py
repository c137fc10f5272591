"""Apache Avro: values with a schema, from a registry or a file."""

from turnout.codecs.avro.kind import KIND

__all__ = ["KIND"]
