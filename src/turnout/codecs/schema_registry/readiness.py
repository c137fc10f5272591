"""Readiness of a registry: after its start, Karapace answers that schemas are unknown until it has read its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

_PATH: Final = "_health"


class Readiness:
    """Request for the readiness of a registry; a registry without one, such as Confluent's, is asked once."""

    def __init__(self) -> None:
        self._is_offered = True

    def of(self, client: SchemaRegistryClient) -> bool | None:
        """Return whether the registry has read its schemas; None where it does not say.

        Raises:
            Exception: no server answers.
        """
        from confluent_kafka.schema_registry import SchemaRegistryError

        if not self._is_offered:
            return None
        try:
            # The client has no method of its own for this path.
            answer = client._rest_client.get(_PATH)  # noqa: SLF001
        except SchemaRegistryError as refusal:
            self._is_offered = refusal.http_status_code >= 500
            return None
        except ValueError:
            answer = None
        ready = _ready(answer)
        self._is_offered = ready is not None
        return ready


def _ready(answer: object) -> bool | None:
    """Return the readiness in Karapace's answer; None in another one."""
    status = answer.get("status") if isinstance(answer, dict) else None
    ready = status.get("schema_registry_ready") if isinstance(status, dict) else None
    return ready if isinstance(ready, bool) else None
