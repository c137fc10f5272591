"""Apicurio's serializers for Kafka in a JVM."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path

from tests.jvm_host import JvmHost
from tests.transforms.kafka_host import jars

VERSION = "2.6.13.Final"
_ARTIFACTS = [
    ("io.apicurio", f"apicurio-registry-serdes-{name}-serde", VERSION) for name in ("avro", "protobuf", "jsonschema")
]


class ApicurioError(Exception):
    """Raised when a serializer refuses a value; the message is that of its exception."""


class ApicurioHost(JvmHost):
    """A JVM with Apicurio's serializers, whose ids are those of Confluent's API."""

    program = Path(__file__).with_name("ApicurioHost.java")
    settings = ("-Dfile.encoding=UTF-8",)
    url = ""

    def class_path(self) -> list[Path]:
        return jars(f"apicurio-serdes-{VERSION}", _ARTIFACTS)

    def write(self, format_name: str, topic: str, schema: str, payloads: Sequence[bytes]) -> list[bytes]:
        """Return each payload as Apicurio's serializer writes it."""
        return self._converted(payloads, format=format_name, topic=topic, schema=schema)

    def read(self, format_name: str, topic: str, texts: Sequence[bytes]) -> list[bytes]:
        """Return the payload of each text that Apicurio's deserializer reads."""
        return self._converted(texts, format=format_name, topic=topic)

    def _converted(self, texts: Sequence[bytes], **request: str) -> list[bytes]:
        options = {
            "apicurio.registry.url": f"{self.url}/apis/registry/v2",
            "apicurio.registry.as-confluent": "true",
            "apicurio.registry.use-id": "contentId",
            "apicurio.registry.find-latest": "true",
            # Of Protobuf it takes a type's name with and without its package for different types.
            "apicurio.registry.serde.validation-enabled": str(request["format"] != "protobuf").lower(),
        }
        answers = self._ask({**request, "options": options, "texts": [b64encode(text).decode() for text in texts]})
        if isinstance(answers, str):
            raise ApicurioError(answers)
        return [b64decode(text) for text in answers]
