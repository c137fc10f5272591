"""Client of a registry: each schema is fetched once per process."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from turnout.base.caches import LruCache
from turnout.base.files import FileChanges, check_file
from turnout.base.http_exchange import AnswerTooLargeError, exchange
from turnout.codecs.schema_registry.options import RegistryOptions
from turnout.errors import ConnectionLostError, MissingExtraError, RecordError, TurnoutError, shortened
from turnout.secrets import masked_url

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError


_log = logging.getLogger(__name__)

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


_Answer = TypeVar("_Answer")

_UNKNOWN_SECONDS: Final = 30.0
"""A schema that the registry does not know is requested again after this time: records with unknown ids cost no
request each."""

_MOST_UNKNOWN: Final = 100
"""Requests for unknown schemas in that time: beyond them, a schema that is not cached is not requested. A producer of
random ids could otherwise make the route wait for a request per record."""

_DOWN_SECONDS: Final = 1.0
"""No schema is requested in this time after all retries failed."""

_RETRY_MS: Final = 100
_MAX_RETRY_MS: Final = 5_000
_MAX_REFERENCES: Final = 200
_REFUSALS: Final = {401: "refuses the credentials", 403: "denies access"}
_NOT_OF_THE_API: Final = -1
"""Error code that Confluent's client gives an answer without one."""

_MAX_ANSWER_BYTES: Final = 16 << 20
"""Bytes of an answer that are read: a schema has 4 MiB at most."""

_TRANSIENT: Final = (408, 429, 500, 502, 503, 504)


class RegistryError(RecordError):
    """Raised when the registry has no usable answer for a schema; only records that need it are concerned."""


class UnknownSchemaError(RegistryError):
    """Raised when the registry does not know a schema id, a subject or a version."""


class IncompatibleSchemaError(RegistryError):
    """Raised when a schema must not follow the versions that its subject has."""


class RegistryUnavailableError(ConnectionLostError):
    """Raised when no server of the registry answers, or none accepts the credentials; a retry may help."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """Schema as a registry has it.

    Attributes:
        type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        text: its definition.
        references: name of each referenced schema, as the definition has it, with the text; referenced ones of
            references precede it.
        id: in the registry; None where the schema is not from one.
        subject: subject of the request, None for a request by id.
        version: version of the subject.
        guid: in the registry; None where the schema is not from one, or the registry has no GUIDs.
        uses: name, subject and version of each schema that this one refers to itself.
    """

    type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    id: int | None = None
    subject: str | None = None
    version: int | None = None
    guid: str | None = None
    uses: tuple[tuple[str, str, int], ...] = ()


class SchemaRegistry:
    """Schemas of one registry, with Confluent's API; any thread may use it.

    The transport is Confluent's own client: it has several URLs, retries with jitter, TLS and both kinds of
    authentication, and is kept in step with the API. This class adds one fetch per schema and process for failures as
    well, references, and errors in plain words.

    Args:
        options: options of the registry.

    Attributes:
        requests: number of requested schemas, versions and references.
    """

    def __init__(self, options: RegistryOptions) -> None:
        _check_usable(options)
        self.options = options
        # The import of Confluent's client takes longer than the check of a route. It alone can read certificates.
        self._opened = _client_of(options) if options.ca or options.certificate else None
        self._files = FileChanges(
            Path(file) for file in (options.ca, options.certificate, options.key) if file is not None
        )
        self._lock = threading.Lock()
        self._fetching: dict[tuple[object, ...], Future[SchemaText]] = {}
        self._found = LruCache[tuple[object, ...], SchemaText](options.cache)
        self._failed = LruCache[tuple[object, ...], tuple[float, RegistryError]](options.cache)
        self._down: tuple[float, RegistryUnavailableError] | None = None
        self._unknown = deque[float](maxlen=_MOST_UNKNOWN)
        self._readiness = Readiness()
        self.requests = 0

    def close(self) -> None:
        """Close the connections and forget the schemas; both are restored when needed."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None
        self._found.clear()
        self._failed.clear()
        self._unknown.clear()
        self._down = None

    @property
    def _client(self) -> SchemaRegistryClient:
        """Confluent's client, made for the first request, and anew when a file of certificates has changed."""
        with self._lock:
            if self._opened is None:
                self._opened = _client_of(self.options)
            elif self._files.found():
                try:
                    self._opened = _client_of(self.options)
                except (OSError, ValueError) as problem:
                    _log.warning("the certificates for the registry cannot be used, the former ones are: %s", problem)
            return self._opened

    def by_id(self, schema_id: int) -> SchemaText:
        """Return a schema.

        Raises:
            UnknownSchemaError: the registry does not have it.
            RegistryUnavailableError: no server answers.
        """
        what = f"the schema with the id {schema_id}"

        def fetch() -> SchemaText:
            return self._text(self._client.get_schema(schema_id), schema_id)

        return self._cached(("id", schema_id), what, fetch)

    def by_guid(self, guid: str) -> SchemaText:
        """Return a schema by the GUID that registries give it beside its id.

        Raises:
            UnknownSchemaError: the registry does not have it.
            RegistryUnavailableError: no server answers.
        """

        def fetch() -> SchemaText:
            return self._text(self._client.get_schema_by_guid(guid), None, guid=guid)

        return self._cached(("guid", guid), f"the schema with the GUID {guid}", fetch)

    def latest(self, subject: str) -> SchemaText:
        """Return the last version of a subject; it is kept as long as the process runs.

        Raises:
            UnknownSchemaError: there is no such subject.
            RegistryUnavailableError: no server answers.
        """

        def fetch() -> SchemaText:
            version = self._client.get_latest_version(subject)
            return self._text(version.schema, version.schema_id, subject, version.version, version.guid)

        return self._cached(("latest", subject), f"the subject {subject!r}", fetch)

    def lookup(self, subject: str, schema: SchemaText) -> SchemaText:
        """Return a schema with the id and the GUID that it has under a subject.

        Raises:
            UnknownSchemaError: it is not registered there.
            RegistryUnavailableError: no server answers.
        """
        return self._registered("lookup", subject, schema, f"this schema under the subject {subject!r}")

    def register(self, subject: str, schema: SchemaText) -> SchemaText:
        """Return a schema with its id and GUID under a subject, and register it there if it is new.

        Raises:
            IncompatibleSchemaError: the registry refuses it after the subject's other versions.
            RegistryUnavailableError: no server answers.
        """
        return self._registered("register", subject, schema, f"the subject {subject!r}")

    def _registered(self, call: str, subject: str, schema: SchemaText, what: str) -> SchemaText:
        def fetch() -> SchemaText:
            sent = _confluent_schema(schema)
            look_up = self._client.lookup_schema if call == "lookup" else self._client.register_schema_full_response
            found = look_up(subject, sent)
            return replace(schema, id=found.schema_id, guid=found.guid, subject=subject)

        return self._cached((call, subject, schema.type, schema.text, schema.uses), what, fetch)

    def _text(
        self,
        schema: Schema,
        schema_id: int | None,
        subject: str | None = None,
        version: int | None = None,
        guid: str | None = None,
    ) -> SchemaText:
        references: dict[str, str] = {}
        self._add_references(schema, references)
        return SchemaText(
            schema.schema_type or "AVRO",
            schema.schema_str or "",
            tuple(references.items()),
            schema_id,
            subject,
            version,
            guid,
            tuple((str(one.name), str(one.subject), one.version or 1) for one in schema.references or ()),
        )

    def _add_references(self, schema: Schema, found: dict[str, str]) -> None:
        """Add the texts of a schema's references, dependencies first."""
        pending = [(reference, False) for reference in reversed(schema.references or ())]
        visited: set[str] = set()
        texts: dict[str, str] = {}
        while pending:
            reference, complete = pending.pop()
            name = str(reference.name)
            if complete:
                found.setdefault(name, texts[name])
                continue
            if name in visited:
                continue
            if len(visited) == _MAX_REFERENCES:
                raise RegistryError(f"the schema refers to more than {_MAX_REFERENCES} others")
            visited.add(name)
            self.requests += 1
            other = self._client.get_version(str(reference.subject), reference.version or 1).schema
            texts[name] = other.schema_str or ""
            pending.append((reference, True))
            pending += [(inner, False) for inner in reversed(other.references or ())]

    def _cached(self, key: tuple[object, ...], what: str, fetch: Callable[[], SchemaText]) -> SchemaText:
        """Return a schema that was fetched before, or fetch it: one caller does, without a lock, others of it wait."""
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                return found
            for failed in (self._failed.get(key), self._down):
                if failed is not None and time.monotonic() < failed[0]:
                    raise failed[1]
            if len(self._unknown) == _MOST_UNKNOWN and time.monotonic() < self._unknown[0] + _UNKNOWN_SECONDS:
                raise UnknownSchemaError(
                    f"{what} was not requested from the schema registry: it did not know {_MOST_UNKNOWN} others within "
                    f"{_UNKNOWN_SECONDS:.0f} seconds"
                )
            other = self._fetching.get(key)
            if other is None:
                own = self._fetching[key] = Future[SchemaText]()
        if other is not None:
            return other.result()
        try:
            text = self._answered(what, fetch)
        except BaseException as failure:
            with self._lock:
                now = time.monotonic()
                if isinstance(failure, RegistryError):
                    self._unknown.append(now)
                    self._failed.add(key, (now + _UNKNOWN_SECONDS, failure))
                elif isinstance(failure, RegistryUnavailableError):
                    self._down = (now + _DOWN_SECONDS, failure)
                del self._fetching[key]
            own.set_exception(failure)
            raise
        with self._lock:
            self._found.add(key, text)
            del self._fetching[key]
        own.set_result(text)
        return text

    def _answered(self, what: str, fetch: Callable[[], _Answer]) -> _Answer:
        """Return the answer, or raise the failure in plain words."""
        try:
            return self._requested(what, fetch)
        except UnknownSchemaError:
            ready = self._translated(what, lambda: self._readiness.of(self._client))
            if ready is None:
                raise
        if not ready:
            raise RegistryUnavailableError(f"the schema registry {self._servers()} has not read its schemas yet")
        # It may have read them after its first answer.
        return self._requested(what, fetch)

    def _requested(self, what: str, fetch: Callable[[], _Answer]) -> _Answer:
        self.requests += 1
        return self._translated(what, fetch)

    def _translated(self, what: str, request: Callable[[], _Answer]) -> _Answer:
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return request()
        except TurnoutError:
            raise
        except SchemaRegistryError as failure:
            raise self._refused(what, failure) from failure
        except Exception as failure:
            raise RegistryUnavailableError(
                f"the schema registry {self._servers()} does not answer: {masked_url(str(failure)) or failure!r}"
            ) from failure

    def _refused(self, what: str, failure: SchemaRegistryError) -> TurnoutError:
        status, message = failure.http_status_code, shortened(masked_url(str(failure.error_message)))
        if status in _REFUSALS:
            return RegistryUnavailableError(f"the schema registry {self._servers()} {_REFUSALS[status]}: {message}")
        if status in _TRANSIENT:
            return RegistryUnavailableError(f"the schema registry {self._servers()} fails: {message}")
        if status == 404 and failure.error_code == _NOT_OF_THE_API:
            return UnknownSchemaError(
                f"the schema registry {self._servers()} cannot be asked for {what}: it answered 404 without an error "
                "code; it has no such requests, or its URL is wrong"
            )
        if status == 404:
            return UnknownSchemaError(f"the schema registry does not know {what}: {message}")
        if status == 409:
            return IncompatibleSchemaError(
                f"the schema is not compatible with the versions that {what} has, and was not registered: {message}"
            )
        return RegistryError(f"the schema registry refuses {what}: {message}")

    def _servers(self) -> str:
        return masked_url(", ".join(self.options.urls))


def _confluent_schema(schema: SchemaText) -> Schema:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    return Schema(schema.text, schema.type, [SchemaReference(*reference) for reference in schema.uses])


def _check_usable(options: RegistryOptions) -> None:
    """Check what the client needs, without importing it.

    Raises:
        MissingExtraError: the client is not installed.
        OSError: a file of certificates cannot be read.
    """
    # Only `confluent-kafka[schemaregistry]` installs the second one.
    missing = next((name for name in ("confluent_kafka", "authlib") if find_spec(name) is None), None)
    if missing is not None:
        raise MissingExtraError("avro", missing)
    for file in (options.ca, options.certificate, options.key):
        if file is not None:
            # What OpenSSL says names no file.
            check_file(Path(file))


def _client_of(options: RegistryOptions) -> SchemaRegistryClient:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    properties: dict[str, object] = {
        "url": ",".join(options.urls),
        "timeout": options.timeout,
        "max.retries": options.retries,
        "retries.wait.ms": _RETRY_MS,
        "retries.max.wait.ms": _MAX_RETRY_MS,
        "cache.capacity": options.cache,
        "ssl.ca.location": options.ca,
        "ssl.certificate.location": options.certificate,
        "ssl.key.location": options.key,
    }
    if options.key_password is not None:
        properties["ssl.key.password"] = options.key_password.reveal()
    if options.password is not None:
        properties["basic.auth.user.info"] = f"{options.user}:{options.password.reveal()}"
    if options.token is not None:
        properties |= {
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": options.token.reveal(),
            "bearer.auth.logical.cluster": "",
            "bearer.auth.identity.pool.id": "",
        }
    client = SchemaRegistryClient({name: value for name, value in properties.items() if value is not None})
    _limit_exchanges(client, options.timeout)
    return client


def _limit_exchanges(client: SchemaRegistryClient, seconds: float) -> None:
    """Have a client send its requests by `turnout.base.http_exchange.exchange`.

    Its own timeout is that of one read. Credentials, retries and the choice of a server stay those of the client.

    Args:
        client: the client, which has sent no request.
        seconds: seconds of one exchange in total.
    """
    rest: Any = client._rest_client  # noqa: SLF001 - the client has no option for its transport
    # The library of the client: httpx, or its successor.
    httpx: Any = import_module(type(rest.session).__module__.partition(".")[0])

    class Transport(httpx.BaseTransport):  # type: ignore[misc]  # known at run time only
        def handle_request(self, request: Any) -> Any:
            try:
                answer = exchange(
                    str(request.url),
                    method=request.method,
                    headers=dict(request.headers),
                    body=request.read() or None,
                    seconds=seconds,
                    max_bytes=_MAX_ANSWER_BYTES,
                    tls=rest.verify,
                )
            except TimeoutError as failure:
                raise httpx.ReadTimeout(str(failure), request=request) from failure
            except AnswerTooLargeError as failure:
                # No transport error: the same answer would come again.
                raise httpx.DecodingError(str(failure), request=request) from failure
            except OSError as failure:
                raise httpx.ConnectError(str(failure), request=request) from failure
            headers = [pair for pair in answer.headers if pair[0].lower() != "transfer-encoding"]
            return httpx.Response(answer.status, headers=headers, content=answer.body, request=request)

    rest.session.close()
    rest.session = httpx.Client(auth=rest.auth, transport=Transport())


def registry_of(options: RegistryOptions) -> SchemaRegistry:
    """Return the registry with these options; there is one in a process, so that each schema is fetched once.

    Raises:
        MissingExtraError: the client is not installed.
        OSError: a file of certificates cannot be read.
    """
    return _shared(options.client_options())


@lru_cache(maxsize=64)
def _shared(options: RegistryOptions) -> SchemaRegistry:
    return SchemaRegistry(options)


_FIRST_DELAY: Final = 0.5
_MAX_DELAY: Final = 10.0


def answered(options: RegistryOptions, request: Callable[[], _Answer]) -> _Answer:
    """Return the result of a request, repeated while the registry is down.

    Args:
        options: options of the registry: *dead_letter* is the policy, *wait* its time in seconds.
        request: raises `RegistryUnavailableError` while the registry is down.

    Raises:
        RegistryUnavailableError: the registry was down for longer.
        RecordError: it is down, and the route dead-letters records without a schema.
    """
    deadline = time.monotonic() + options.wait
    delay = _FIRST_DELAY
    while True:
        try:
            return request()
        except RegistryUnavailableError as failure:
            if options.dead_letter:
                raise RecordError(str(failure)) from failure
            if time.monotonic() + delay > deadline:
                raise
        time.sleep(delay)
        delay = min(2 * delay, _MAX_DELAY)
