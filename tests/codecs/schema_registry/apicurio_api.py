"""Apicurio's API (v2) over the stand-in: the requests that its serializers make.

Ids of contents are those of Confluent's API, as in Apicurio's ``ccompat``. An artifact is a subject.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.codecs.schema_registry.stand_in import ApiError, Registered, StandIn

_API = "/apis/registry/v2/"


class ApicurioStandIn(StandIn):
    """Registry with both APIs."""

    def _answer(self, method: str, target: str, body: bytes) -> Any:
        path = urlsplit(target).path
        if not path.startswith(_API):
            return super()._answer(method, target, body)
        for pattern, answers in _PATHS.items():
            match = re.fullmatch(pattern, path.removeprefix(_API))
            if match is not None and method in answers:
                return answers[method](self, *map(unquote, match.groups()), body)
        raise ApiError(404, 404, f"No artifact or path {path}")

    def _content(self, number: str, body: bytes) -> bytes:
        return self._known(number).text.encode()

    def _references(self, number: str, body: bytes) -> Any:
        return [
            {"groupId": "default", "name": name, "artifactId": subject, "version": str(version)}
            for name, subject, version in self._known(number).references
        ]

    def _latest(self, subject: str, body: bytes) -> Any:
        return self._metadata(subject, max(self._of(subject)))

    def _known(self, number: str) -> Registered:
        found = next((schema for schema, id_ in self._ids.items() if id_ == int(number)), None)
        if found is None:
            raise ApiError(404, 404, f"No content with id {number}")
        return found

    def _metadata(self, subject: str, version: int) -> dict[str, Any]:
        schema = self._of(subject)[version]
        return {
            "groupId": "default", "id": subject, "version": str(version), "type": schema.type,
            "globalId": self._ids[schema], "contentId": self._ids[schema], "state": "ENABLED",
        }  # fmt: skip


_GROUP = "groups/[^/]+/artifacts/([^/]+)"
_PATHS: dict[str, dict[str, Callable[..., Any]]] = {
    "ids/(?:globalIds|contentIds)/([0-9]+)/?": {"GET": ApicurioStandIn._content},
    "ids/(?:globalIds|contentIds)/([0-9]+)/references": {"GET": ApicurioStandIn._references},
    f"{_GROUP}/meta": {"GET": ApicurioStandIn._latest},
}
