"""Stand-in for Karapace 6.2, where it differs from Confluent's documentation."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from tests.codecs.schema_registry.stand_in import ApiError, Registered, StandIn

_REWRITTEN = "// rewritten\n"


@dataclass
class KarapaceStandIn(StandIn):
    """Registry without GUIDs, references in JSON Schema and the original texts of schemas.

    Requests that Karapace does not have are answered with a text instead of an error of the API. Before it has read its
    topic, all schemas are unknown to it.

    Attributes:
        unread: number of requests for schemas before it has read its topic.
    """

    guids: bool = False
    unread: int = 0

    def handle(self, method: str, target: str, body: bytes, authorization: str | None) -> tuple[int, Any]:
        """Return status and content of the answer to a request."""
        if target == "/_health":
            self.requests.append(f"{method} {target}")
            return 200, {"healthy": True, "status": {"schema_registry_ready": not self.unread}}
        status, content = super().handle(method, target, body, authorization)
        if status == 401:
            return status, {"message": "Unauthorized"}
        if "/guids/" in target or (status == 404 and content["error_code"] == 404):
            return 404, "Not Found"
        return status, content

    def _answer(self, method: str, target: str, body: bytes) -> Any:
        if self.unread and method == "GET":
            self.unread -= 1
            raise ApiError(404, 40403, "Schema not found")
        return super()._answer(method, target, body)

    def _schema_by_id(self, number: str, *, query: dict[str, str], body: Any) -> Any:
        try:
            return super()._schema_by_id(number, query=query, body=body)
        except ApiError as unknown:
            raise ApiError(unknown.status, unknown.code, "Schema not found") from None

    def _list_subjects(self, *, query: dict[str, str], body: Any) -> Any:
        return super()._list_subjects(query={}, body=body)

    def _read(self, body: Any) -> Registered:
        schema = super()._read(body)
        if schema.type == "JSON" and schema.references:
            raise ApiError(422, 44302, "Schema references are not supported for 'JSON' schema type")
        return replace(schema, text=_rewritten(schema))

    def _refusal(self, subject: str, problem: str) -> ApiError:
        level = self.levels.get(subject, self.levels[None])
        return ApiError(409, 409, f"Incompatible schema, compatibility_mode={level}. Incompatibilities: {problem}")


def _rewritten(schema: Registered) -> str:
    """Return the text with sorted names. Karapace writes .proto files anew; a comment stands for that here."""
    if schema.type == "PROTOBUF":
        return _REWRITTEN + schema.text.removeprefix(_REWRITTEN)
    return json.dumps(json.loads(schema.text), sort_keys=True, separators=(",", ":"))
