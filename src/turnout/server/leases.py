"""Stores of the lease of a leader: a bucket of NATS, a table of PostgreSQL, a Lease of Kubernetes.

A store is a class with the methods of `turnout.server.election.LeaseStore` and a line of `_STORES`.
"""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from turnout.base.http_exchange import exchange
from turnout.base.untrusted import JsonObject
from turnout.errors import ConfigError, ConnectionLostError, Mistake, RunError, StoreUnavailableError, StreamError
from turnout.nats.protocol.errors import MessageNotFoundError, StreamNotFoundError
from turnout.nats.wire import Connection, ConnectionOptions, create_stream
from turnout.nats.wire.connection import Message
from turnout.runtime.shares import Table
from turnout.secrets import masked_url
from turnout.server.election import Lease, LeaseConflictError, LeaseStore

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_WRONG_LAST_SEQUENCE: Final = 10071


def lease_store(url: str, name: str, seconds: float, options: Mapping[str, str] | None = None) -> LeaseStore:
    """Return the store that a URL names.

    Args:
        url: ``nats://…`` (also ``tls://`` and ``ws://``), ``postgres://…`` or ``kubernetes``.
        name: name of the lease: servers with the same one take turns.
        seconds: length of the lease; each call takes at most a third of it.
        options: further options of a connection to NATS.

    Raises:
        ConfigError: there is no such store, or the name is none for a lease.
    """
    if not _NAME.fullmatch(name):
        problem = f"expected lower-case letters, digits and '-', at most 63 of them, found {name!r}"
        raise ConfigError([Mistake("ha.name", problem)])
    make = _STORES.get(urlsplit(url).scheme or url)
    if make is None:
        raise ConfigError(
            [Mistake("ha.lease", f"expected nats://…, postgres://… or kubernetes, found {masked_url(url)}")]
        )
    if options and make is not NatsLease:
        raise ConfigError([Mistake("ha.options", "are those of a connection to NATS; the lease is kept elsewhere")])
    return make(url, name, seconds / 3, **({"options": options} if options else {}))


class NatsLease:
    """Lease in a key-value bucket of JetStream.

    Args:
        url: servers, credentials and options as of an endpoint.
        name: key of the lease.
        seconds: longest duration of a call.
        options: further options of the connection.
    """

    BUCKET: Final = "turnout_leases"

    def __init__(self, url: str, name: str, seconds: float, options: Mapping[str, str] | None = None) -> None:
        self._options = replace(
            ConnectionOptions.from_mapping({**(options or {}), "servers": url}),
            timeout=seconds / 2,
            connect_timeout=seconds / 2,
            reconnect_timeout=seconds,
        )
        self._subject = f"$KV.{self.BUCKET}.{name}"
        self._connection = Connection(self._options)

    def read(self) -> tuple[str, str] | None:
        """Return the text and its sequence in the bucket, as the stream's leader has it."""
        try:
            answer = self._connection.api(f"STREAM.MSG.GET.KV_{self.BUCKET}", {"last_by_subj": self._subject})
        except StreamNotFoundError:
            # Each write waits for the disk, and in a cluster for a majority.
            config = {"name": f"KV_{self.BUCKET}", "subjects": [f"$KV.{self.BUCKET}.>"], "max_msgs_per_subject": 1}
            flags = {"allow_rollup_hdrs": True, "allow_direct": True, "deny_delete": True, "discard": "new"}
            create_stream(self._connection, {**config, **flags})
            return None
        except MessageNotFoundError:
            return None
        except StreamError as failure:
            raise ConnectionLostError(f"the lease cannot be read: {failure}") from None
        message = answer["message"]
        return base64.b64decode(message.get("data") or "").decode(), str(message["seq"])

    def write(self, text: str, version: str | None) -> str:
        """Publish the text behind the message of the version."""
        headers = {"Nats-Expected-Last-Subject-Sequence": version or "0"}
        try:
            answer: Message = self._connection.request(self._subject, text.encode(), headers)
        except StreamError as failure:
            raise ConnectionLostError(f"the lease cannot be written: {failure}") from None
        stored: JsonObject = json.loads(answer.payload or b"{}")
        error = stored.get("error")
        if error is None:
            return str(stored["seq"])
        if error.get("err_code") == _WRONG_LAST_SEQUENCE:
            raise LeaseConflictError(error.get("description"))
        raise ConnectionLostError(f"the lease cannot be written: {error.get('description')}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class PostgresLease:
    """Lease in the table ``turnout.lease``.

    Args:
        url: as libpq takes it.
        name: key of the row.
        seconds: longest duration of a call.
    """

    _TABLE: Final = """
    CREATE SCHEMA IF NOT EXISTS {schema};
    CREATE TABLE IF NOT EXISTS {schema}.lease (name TEXT PRIMARY KEY, version BIGINT NOT NULL, text TEXT NOT NULL)
    """

    def __init__(self, url: str, name: str, seconds: float) -> None:
        from turnout.subscriptions.stores._postgres_driver import Database

        self._database = Database(url, "turnout")
        self._name = name
        self._seconds = seconds
        self._has_table = False

    def read(self) -> tuple[str, str] | None:
        """Return the text and its version."""
        found = self._row("SELECT text, version FROM {schema}.lease WHERE name = %s", (self._name,))
        return None if found is None else (str(found[0]), str(found[1]))

    def write(self, text: str, version: str | None) -> str:
        """Replace the text of the version, in one statement."""
        if version is None:
            statement = "INSERT INTO {schema}.lease VALUES (%s, 1, %s) ON CONFLICT (name) DO NOTHING RETURNING version"
            written = self._row(statement, (self._name, text))
        else:
            statement = (
                "UPDATE {schema}.lease SET text = %s, version = version + 1 WHERE name = %s AND version = %s"
                " RETURNING version"
            )
            written = self._row(statement, (text, self._name, int(version)))
        if written is None:
            raise LeaseConflictError("another server has written the lease")
        return str(written[0])

    def _row(self, statement: str, values: tuple[object, ...]) -> tuple[object, ...] | None:
        from turnout.subscriptions.store import within

        try:
            with within(self._seconds), self._database.writing() as connection:
                if not self._has_table:
                    connection.execute("SELECT pg_advisory_xact_lock(7108245)")
                    connection.execute(self._database.statement(self._TABLE))
                found = connection.execute(self._database.statement(statement), values)
                row: tuple[object, ...] | None = found.fetchone()
        except StoreUnavailableError as failure:
            raise ConnectionLostError(str(failure)) from None
        self._has_table = True
        return row

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


class KubernetesLease:
    """Lease of ``coordination.k8s.io/v1`` in the namespace of the pod, by its service account.

    Its fields are those of Kubernetes' own leaders, for ``kubectl get lease``; the version is ``resourceVersion``.

    Args:
        url: ``kubernetes``, or ``kubernetes://NAMESPACE``.
        name: name of the Lease.
        seconds: longest duration of a call.
        environment: has the address of the API server.
        account: folder of the service account.
    """

    _ANNOTATION: Final = "turnout/lease"

    def __init__(
        self,
        url: str,
        name: str,
        seconds: float,
        *,
        environment: Mapping[str, str] = os.environ,
        account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount"),
    ) -> None:
        host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not (account / "token").is_file():
            raise ConfigError([Mistake("ha.lease", "kubernetes is for pods: there is no service account here")])
        self._account = account
        self._name = name
        self._seconds = seconds
        self._namespace = urlsplit(url).netloc or (account / "namespace").read_text(encoding="utf-8").strip()
        host = f"[{host}]" if ":" in host else host
        self._leases = f"https://{host}:{port}/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"
        self._found: JsonObject = {}

    def read(self) -> tuple[str, str] | None:
        """Return the text and the version of the Lease."""
        status, lease = self._ask("GET", f"{self._leases}/{self._name}", None)
        if status == 404:
            return None
        self._found = lease
        text = lease["metadata"].get("annotations", {}).get(self._ANNOTATION)
        if text is None:
            raise RunError(f"the Lease {self._name} of the namespace {self._namespace} is another program's")
        return str(text), str(lease["metadata"]["resourceVersion"])

    def write(self, text: str, version: str | None) -> str:
        """Replace or create the Lease; the API server compares the version."""
        lease = Lease.of(Table.of(text, 1))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = self._found.get("spec", {})
        same = before.get("holderIdentity") == lease.holder
        spec = {
            "holderIdentity": lease.holder,
            "leaseDurationSeconds": max(1, round(lease.member.seconds)),
            "acquireTime": before.get("acquireTime", now) if same else now,
            "renewTime": now,
            "leaseTransitions": lease.term - 1,
        }
        metadata = {"name": self._name, "namespace": self._namespace, "annotations": {self._ANNOTATION: text}}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        if version is None:
            status, written = self._ask("POST", self._leases, body)
        else:
            metadata["resourceVersion"] = version
            status, written = self._ask("PUT", f"{self._leases}/{self._name}", body)
        if status in (404, 409):
            raise LeaseConflictError("another server has written the Lease")
        self._found = written
        return str(written["metadata"]["resourceVersion"])

    def _ask(self, method: str, url: str, body: object) -> tuple[int, JsonObject]:
        # Kubernetes renews the token's file.
        token = (self._account / "token").read_text(encoding="utf-8").strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            answer = exchange(
                url,
                method=method,
                headers=headers,
                body=None if body is None else json.dumps(body).encode(),
                seconds=self._seconds,
                max_bytes=1 << 20,
                tls=ssl.create_default_context(cafile=str(self._account / "ca.crt")),
                proxies=False,
            )
        except OSError as failure:
            raise ConnectionLostError(f"the API server of Kubernetes does not answer: {failure}") from None
        if answer.status in (200, 201, 404, 409):
            try:
                # Of a refusal the status is enough.
                content: JsonObject = json.loads(answer.body) if answer.status < 400 else {}
            except ValueError as broken:
                raise ConnectionLostError(f"the API server of Kubernetes answers no JSON: {broken}") from None
            return answer.status, content
        if answer.status in (401, 403):
            needs = "get, create and update of leases (coordination.k8s.io)"
            raise RunError(f"the service account may not keep the Lease {self._name}: it needs {needs}")
        raise ConnectionLostError(f"the API server of Kubernetes answers {answer.status} {answer.reason}")

    def close(self) -> None:
        """Close nothing: each call has a connection of its own."""


_STORES: Final[dict[str, Callable[..., LeaseStore]]] = {
    **dict.fromkeys(("nats", "tls", "ws", "wss"), NatsLease),
    **dict.fromkeys(("postgres", "postgresql"), PostgresLease),
    "kubernetes": KubernetesLease,
}
