"""Stand-in for a schema registry, with Confluent's published REST API, tested with `confluent_kafka`'s client.

Subjects, versions, ids, references, compatibility levels and the errors of the API. Whether two schemas are compatible
is decided by a rule of its own: a record's new fields need defaults (BACKWARD), its other rules are not checked.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

LEVELS = ("BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE")
_MAX_BODY = 1 << 20


class ApiError(Exception):
    """Error of the API: HTTP status, code and message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True)
class Registered:
    """Schema with what makes it the same schema."""

    text: str
    type: str = "AVRO"
    references: tuple[tuple[str, str, int], ...] = ()

    @property
    def guid(self) -> str:
        """The same for an equal schema in every registry."""
        return str(UUID(bytes=md5(repr(self).encode(), usedforsecurity=False).digest()))

    def document(self) -> dict[str, Any]:
        content: dict[str, Any] = {"schema": self.text}
        if self.type != "AVRO":
            content["schemaType"] = self.type
        if self.references:
            names = ("name", "subject", "version")
            content["references"] = [dict(zip(names, reference, strict=True)) for reference in self.references]
        return content


@dataclass
class StandIn:
    """Registry in memory.

    Attributes:
        url: of the server.
        requests: method and path of each request.
        by_connection: number of requests by the client's address. A client has one connection, which it keeps.
        credentials: the value that the header ``Authorization`` has to have; None where none is needed.
        failing: the status of every answer; None where the registry works.
        clients: that are closed with the registry.
        guids: whether schemas have GUIDs, as in newer registries.
    """

    url: str = ""
    requests: list[str] = field(default_factory=list)
    by_connection: Counter[Any] = field(default_factory=Counter)
    credentials: str | None = None
    failing: int | None = None
    clients: list[Any] = field(default_factory=list)
    guids: bool = True
    levels: dict[str | None, str] = field(default_factory=lambda: {None: "BACKWARD"})
    _ids: dict[Registered, int] = field(default_factory=dict)
    _subjects: dict[str, dict[int, Registered]] = field(default_factory=dict)
    _deleted: dict[str, dict[int, Registered]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def handle(self, method: str, target: str, body: bytes, authorization: str | None) -> tuple[int, Any]:
        """Return status and content of the answer to a request."""
        with self._lock:
            self.requests.append(f"{method} {target}")
            try:
                self._admit(authorization)
                return 200, self._answer(method, target, body)
            except ApiError as error:
                return error.status, {"error_code": error.code, "message": str(error)}

    def add(
        self, subject: str, text: str, type_: str = "AVRO", references: tuple[tuple[str, str, int], ...] = ()
    ) -> int:
        """Register a schema without a check of its compatibility; return its id."""
        return self._add(subject, Registered(text, type_, references))

    def text(self, schema_id: int) -> str:
        """Return the text of a schema that was registered."""
        return next(known.text for known, id_ in self._ids.items() if id_ == schema_id)

    def _admit(self, authorization: str | None) -> None:
        if self.failing is not None:
            raise ApiError(self.failing, self.failing, "Error in the backend data store")
        if self.credentials is not None and authorization != self.credentials:
            raise ApiError(401, 401, "Unauthorized")

    def _answer(self, method: str, target: str, body: bytes) -> Any:
        url = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        for pattern, methods in _PATHS:
            match = pattern.fullmatch(url.path)
            if match is not None:
                if method not in methods:
                    raise ApiError(405, 405, "HTTP 405 Method Not Allowed")
                return methods[method](self, *map(unquote, match.groups()), query=query, body=_json(body))
        raise ApiError(404, 404, "HTTP 404 Not Found")

    def _schema_by_id(self, number: str, *, query: dict[str, str], body: Any) -> Any:
        schema = next((known for known, id_ in self._ids.items() if number.isdecimal() and id_ == int(number)), None)
        if schema is None:
            raise ApiError(404, 40403, f"Schema {number} not found")
        return self._document(schema)

    def _schema_by_guid(self, guid: str, *, query: dict[str, str], body: Any) -> Any:
        schema = next((known for known in self._ids if self.guids and known.guid == guid), None)
        if schema is None:
            raise ApiError(404, 40403, f"Schema {guid} not found")
        return self._document(schema)

    def _document(self, schema: Registered) -> dict[str, Any]:
        return {**schema.document(), "guid": schema.guid} if self.guids else schema.document()

    def _text_by_id(self, number: str, *, query: dict[str, str], body: Any) -> Any:
        return json.loads(self._schema_by_id(number, query=query, body=body)["schema"])

    def _versions_by_id(self, number: str, *, query: dict[str, str], body: Any) -> Any:
        self._schema_by_id(number, query=query, body=body)
        return [
            {"subject": subject, "version": version}
            for subject, versions in self._subjects.items()
            for version, schema in versions.items()
            if self._ids[schema] == int(number)
        ]

    def _types(self, *, query: dict[str, str], body: Any) -> Any:
        return ["JSON", "PROTOBUF", "AVRO"]

    def _list_subjects(self, *, query: dict[str, str], body: Any) -> Any:
        prefix = query.get("subjectPrefix", "").removeprefix(":*:")
        return sorted(name for name, versions in self._subjects.items() if versions and name.startswith(prefix))

    def _list_versions(self, subject: str, *, query: dict[str, str], body: Any) -> Any:
        return sorted(self._of(subject))

    def _version(self, subject: str, version: str, *, query: dict[str, str], body: Any) -> Any:
        number = self._number(subject, version)
        schema = self._subjects[subject][number]
        return {"subject": subject, "id": self._ids[schema], "version": number, **self._document(schema)}

    def _version_text(self, subject: str, version: str, *, query: dict[str, str], body: Any) -> Any:
        return json.loads(self._version(subject, version, query=query, body=body)["schema"])

    def _referenced_by(self, subject: str, version: str, *, query: dict[str, str], body: Any) -> Any:
        number = self._number(subject, version)
        return sorted(
            id_ for schema, id_ in self._ids.items() if (subject, number) in [one[1:] for one in schema.references]
        )

    def _register(self, subject: str, *, query: dict[str, str], body: Any) -> Any:
        schema = self._read(body)
        versions = self._subjects.get(subject, {})
        if schema not in versions.values():
            problem = self._incompatibility(subject, schema, sorted(versions)[-1:])
            if problem:
                raise self._refusal(subject, problem)
        number = self._add(subject, schema)
        return {"id": number, **self._document(schema)} if self.guids else {"id": number}

    def _lookup(self, subject: str, *, query: dict[str, str], body: Any) -> Any:
        schema = self._read(body)
        for version, known in self._of(subject).items():
            if known == schema:
                return {"subject": subject, "id": self._ids[known], "version": version, **self._document(known)}
        raise ApiError(404, 40403, "Schema not found")

    def _delete_subject(self, subject: str, *, query: dict[str, str], body: Any) -> Any:
        if query.get("permanent") == "true":
            if subject in self._subjects:
                raise ApiError(
                    404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
                )
            if subject not in self._deleted:
                raise ApiError(404, 40401, f"Subject '{subject}' not found.")
            return sorted(self._deleted.pop(subject))
        versions = self._of(subject)
        self._refuse_if_referenced(subject, versions)
        self._deleted.setdefault(subject, {}).update(self._subjects.pop(subject))
        return sorted(versions)

    def _delete_version(self, subject: str, version: str, *, query: dict[str, str], body: Any) -> Any:
        number = self._number(subject, version)
        self._refuse_if_referenced(subject, [number])
        self._deleted.setdefault(subject, {})[number] = self._subjects[subject].pop(number)
        if not self._subjects[subject]:
            del self._subjects[subject]
        return number

    def _compatible(self, subject: str, version: str, *, query: dict[str, str], body: Any) -> Any:
        schema, number = self._read(body), self._number(subject, version)
        problem = self._incompatibility(subject, schema, [number])
        answer: dict[str, Any] = {"is_compatible": not problem}
        if problem and query.get("verbose") == "true":
            answer["messages"] = [problem]
        return answer

    def _level(self, subject: str | None = None, *, query: dict[str, str], body: Any) -> Any:
        if subject is not None and subject not in self.levels and query.get("defaultToGlobal") != "true":
            raise ApiError(404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured")
        return {"compatibilityLevel": self.levels.get(subject, self.levels[None])}

    def _set_level(self, subject: str | None = None, *, query: dict[str, str], body: Any) -> Any:
        level = body.get("compatibility") if isinstance(body, dict) else None
        if level not in LEVELS:
            raise ApiError(422, 42203, "Invalid compatibility level. Valid values are none, backward, forward, full")
        self.levels[subject] = level
        return {"compatibility": level}

    def _of(self, subject: str) -> dict[int, Registered]:
        if not self._subjects.get(subject):
            raise ApiError(404, 40401, f"Subject '{subject}' not found.")
        return self._subjects[subject]

    def _number(self, subject: str, version: str) -> int:
        versions = self._of(subject)
        if version in ("latest", "-1"):
            return max(versions)
        if not version.isdecimal() or not 1 <= int(version) < 2**31:
            raise ApiError(
                422, 42202, f"The specified version '{version}' is not a valid version id. Allowed values are between "
                "[1, 2^31-1] and the string \"latest\""
            )  # fmt: skip
        if int(version) not in versions:
            raise ApiError(404, 40402, f"Version {version} not found.")
        return int(version)

    def _read(self, body: Any) -> Registered:
        if not isinstance(body, dict) or not isinstance(body.get("schema"), str) or not body["schema"]:
            raise ApiError(422, 42201, "Empty schema")
        type_ = body.get("schemaType") or "AVRO"
        if type_ not in ("AVRO", "PROTOBUF", "JSON"):
            raise ApiError(422, 42201, f"Invalid schema type {type_}")
        references = self._referred(body)
        if type_ != "PROTOBUF":
            try:
                json.loads(body["schema"])
            except ValueError:
                raise ApiError(422, 42201, f"Invalid schema {body['schema'][:100]}") from None
        return Registered(body["schema"], type_, references)

    def _referred(self, body: Any) -> tuple[tuple[str, str, int], ...]:
        try:
            return tuple(
                (str(one["name"]), str(one["subject"]), self._number(str(one["subject"]), str(one["version"])))
                for one in body.get("references") or ()
            )
        except ApiError as missing:
            raise ApiError(422, 42201, f"Invalid schema {body['schema'][:100]}, details: {missing}") from None

    def _add(self, subject: str, schema: Registered) -> int:
        number = self._ids.setdefault(schema, len(self._ids) + 1)
        versions = self._subjects.setdefault(subject, {})
        if schema not in versions.values():
            versions[max([0, *versions, *self._deleted.get(subject, {})]) + 1] = schema
        return number

    def _incompatibility(self, subject: str, schema: Registered, versions: list[int]) -> str | None:
        level = self.levels.get(subject, self.levels[None])
        if level == "NONE" or schema.type != "AVRO":
            return None
        return next(filter(None, (_new_fields(self._subjects[subject][one], schema) for one in versions)), None)

    def _refusal(self, subject: str, problem: str) -> ApiError:
        what = f'Schema being registered is incompatible with an earlier schema for subject "{subject}"'
        return ApiError(409, 409, f"{what}, details: [{problem}]")

    def _refuse_if_referenced(self, subject: str, versions: Any) -> None:
        for schema in {known for those in self._subjects.values() for known in those.values()}:
            if any(one[1] == subject and one[2] in versions for one in schema.references):
                raise ApiError(422, 42206, "One or more references exist to the schema")


def _new_fields(old: Registered, new: Registered) -> str | None:
    before, after = json.loads(old.text), json.loads(new.text)
    if not isinstance(before, dict) or not isinstance(after, dict) or before.get("type") != after.get("type"):
        return None if before == after else "{errorType:'TYPE_MISMATCH', description:'The type was changed'}"
    names = {one["name"] for one in before.get("fields", ())}
    for one in after.get("fields", ()):
        if one["name"] not in names and "default" not in one:
            return (
                "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field "
                f"'{one['name']}' in the new schema has no default value and is missing in the old schema'}}"
            )
    return None


def _json(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError:
        raise ApiError(400, 400, "Unrecognized token") from None


_Answer = Callable[..., Any]
_METHODS: dict[str, dict[str, _Answer]] = {
    "/schemas/types": {"GET": StandIn._types},
    "/schemas/ids/{}": {"GET": StandIn._schema_by_id},
    "/schemas/guids/{}": {"GET": StandIn._schema_by_guid},
    "/schemas/ids/{}/schema": {"GET": StandIn._text_by_id},
    "/schemas/ids/{}/versions": {"GET": StandIn._versions_by_id},
    "/subjects": {"GET": StandIn._list_subjects},
    "/subjects/{}": {"POST": StandIn._lookup, "DELETE": StandIn._delete_subject},
    "/subjects/{}/versions": {"GET": StandIn._list_versions, "POST": StandIn._register},
    "/subjects/{}/versions/{}": {"GET": StandIn._version, "DELETE": StandIn._delete_version},
    "/subjects/{}/versions/{}/schema": {"GET": StandIn._version_text},
    "/subjects/{}/versions/{}/referencedby": {"GET": StandIn._referenced_by},
    "/compatibility/subjects/{}/versions/{}": {"POST": StandIn._compatible},
    "/config": {"GET": StandIn._level, "PUT": StandIn._set_level},
    "/config/{}": {"GET": StandIn._level, "PUT": StandIn._set_level},
}
_PATHS = [(re.compile(path.replace("{}", "([^/]+)")), methods) for path, methods in _METHODS.items()]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: StandIn

    def _respond(self) -> None:
        self.registry.by_connection[self.client_address] += 1
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(min(length, _MAX_BODY))
        status, content = self.registry.handle(self.command, self.path, body, self.headers.get("Authorization"))
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = _respond

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base class
        pass


@contextmanager
def running_registry(registry: StandIn | None = None) -> Iterator[StandIn]:
    """Run a registry on a free port of the loopback interface."""
    registry = registry or StandIn()
    handler = type("Handler", (_Handler,), {"registry": registry, "disable_nagle_algorithm": True})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        for client in registry.clients:
            client.close()
        server.shutdown()
        server.server_close()
        thread.join()
