"""Election of the one server that runs the routes: it is the owner of the one share of a table of leases.

`turnout.runtime.leases` has the rule. Standbys read the table, and write it only to take the share, when it is free,
or to ask for it: a leader that does not reach the servers of its routes gives way to one that does.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

from turnout.base.background import Background, run_once
from turnout.base.http_exchange import exchange
from turnout.base.untrusted import JsonObject
from turnout.errors import ConfigError, ConnectionLostError, Mistake, RunError, StoreUnavailableError, StreamError
from turnout.nats.protocol.errors import MessageNotFoundError, StreamNotFoundError
from turnout.nats.wire import Connection, ConnectionOptions, create_stream
from turnout.nats.wire.connection import Message
from turnout.runtime.leases import DRIFT, PERMIT_SECONDS, TRIES, Member, Membership, Permit, Table, leased_seconds
from turnout.secrets import masked_url

_log = logging.getLogger("turnout.server")

_LOOK_SECONDS: Final = 0.25
"""Seconds between two looks of a standby: a released lease is taken as soon."""

_SOON_SECONDS: Final = 0.05
"""The same while the leader is about to release it."""

_WATCH_SECONDS: Final = 0.5
"""Seconds between two looks whether the servers of the routes answer."""


class LeaseConflictError(Exception):
    """Raised by a store of which another one has written the lease meanwhile."""


class LeaseStore(Protocol):
    """Store of one lease, as text. Every call is bounded in time."""

    def read(self) -> tuple[str, str] | None:
        """Return the text and its version; None if there is none.

        Raises:
            ConnectionLostError: the store does not answer.
        """
        ...

    def write(self, text: str, version: str | None) -> str:
        """Replace the text of this version, or write the first one; return the new version.

        Raises:
            LeaseConflictError: the version is another one.
            ConnectionLostError: the store does not answer; whether the text is written is not known.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease of a leader, as a table has it.

    Attributes:
        term: number of the leadership: each leader has a higher one than all before.
        holder: name of the leader, which no other process has; "" if none leads, so that another one may begin at once.
        member: the rest that is known of it.
    """

    term: int
    holder: str
    member: Member

    @classmethod
    def of(cls, table: Table) -> Self:
        """Return the lease of a table with one share."""
        holder, term = table.owners[0]
        return cls(term, holder, table.members.get(holder, Member(0, 0.0)))


class Elector:
    """Candidate for the lease: leads from the time when it gets it until it loses or releases it, once.

    Args:
        store: keeps the lease.
        holder: name of this process, which no other has.
        url: where this process answers.
        seconds: length of its lease.
        clock: seconds that only grow.

    Attributes:
        lease: the lease as it was read last; None before.
        hands_over: whether this process is asked to end, so that another one leads.
        is_leaving: whether it ends, and gives the lease back soon.
        is_cut_off: whether a server of the routes cannot be reached from here.
        is_wanted: whether a standby has asked for the lease while this process was cut off.
    """

    def __init__(
        self,
        store: LeaseStore,
        holder: str,
        url: str,
        seconds: float,
        *,
        clock: Callable[[], float] = leased_seconds,
    ) -> None:
        self.lease: Lease | None = None
        self.hands_over = False
        self.is_leaving = False
        self.is_cut_off = False
        self.is_wanted = False
        self._store = store
        self._membership = Membership(holder, 1, seconds, clock, url)
        self._lock = threading.Lock()
        self._term: int | None = None
        self._ended = False
        # Apart from the other lock, as tasks do not wait for the store.
        self._permits = threading.Lock()
        self._permitted_until = clock()

    @property
    def term(self) -> int | None:
        """Term of this process's leadership; None before it leads."""
        return self._term

    @property
    def pause(self) -> float:
        """Seconds until the next step is due."""
        if self._term is None and self.lease is not None and self.lease.member.leaving:
            return _SOON_SECONDS
        return _LOOK_SECONDS if self._term is None or self.is_cut_off else self._membership.pause

    def remaining(self) -> float:
        """Return the seconds for which this process leads without another renewal; 0 or less if it does not."""
        return 0.0 if self._term is None or self._ended else self._membership.until - self._membership.clock()

    def permit(self) -> Permit:
        """Return the seconds for which a task may write, and the term of this process."""
        with self._permits:
            seconds = min(self.remaining(), PERMIT_SECONDS)
            self._permitted_until = max(self._permitted_until, self._membership.clock() + seconds)
        return seconds, self._term or 0

    def has_lost(self) -> bool:
        """Return True if this process led, and must not any more."""
        return self._term is not None and self.remaining() <= 0

    def step(self) -> None:
        """Renew the lease, or take it if no other process has it. One that was lost is not taken again by this process.

        Raises:
            ConnectionLostError: the store does not answer; the lease runs on until its end.
            RunError: the store holds something else.
        """
        with self._lock:
            if not self.has_lost() and not self._ended:
                self._ended = not self._step() and self._term is not None

    def _step(self, *, ends: bool = False) -> bool:
        """Renew, take or release the lease; return False if another process has it."""
        own = self._membership
        for _ in range(TRIES):
            lease, table, version = self._read()
            # A write that seemed to be lost may have arrived before.
            if lease.holder != own.name and (lease.holder or self._term is not None):
                return False
            self.is_wanted = (self.is_wanted or lease.member.wanted) and self.is_cut_off
            begun = own.enter(table, ends=ends, cut_off=self.is_cut_off, leaving=self.is_leaving)
            if self._write(table, version):
                own.written(table, begun)
                self.lease, self._term = Lease.of(table), own.owned.get(0, self._term)
                return True
        raise ConnectionLostError("the lease cannot be written: other servers write it all the time")

    def _read(self) -> tuple[Lease, Table, str | None]:
        text, version = self._store.read() or (None, None)
        table = self._membership.read(text)
        self.lease = Lease.of(table)
        return self.lease, table, version

    def _write(self, table: Table, version: str | None) -> bool:
        try:
            self._store.write(table.text().decode(), version)
        except LeaseConflictError:
            return False
        return True

    def ask(self) -> None:
        """Ask the leader, which is cut off, for its lease: this standby reaches the servers that it does not.

        Raises:
            ConnectionLostError: the store does not answer.
            RunError: the store holds something else.
        """
        with self._lock:
            lease, table, version = self._read()
            if self._term is None and lease.member.cut_off and not lease.member.wanted:
                _log.warning("asking the leader at %s, which is cut off, for the lease", lease.member.url)
                lease.member.wanted = True
                # Of two writers at the same time one fails: the leader renews, and another standby asks too.
                self._write(table, version)

    def retire(self) -> float:
        """Lead no more; return the seconds after which no task may write any more, whatever clock it has."""
        with self._lock, self._permits:
            self._ended = True
            return self._permitted_until + PERMIT_SECONDS * DRIFT - self._membership.clock()

    def release(self) -> None:
        """Give the lease back, when nothing more is written: another server takes it at once."""
        with self._lock:
            self._ended = True
            if self._term is None or not self._membership.is_valid:
                return
            # Whether the answer comes or not, another one may have it from now on.
            self._membership.until = self._membership.clock()
            try:
                self._step(ends=True)
            except ConnectionLostError as failure:
                _log.warning("the lease of term %d ends by itself: %s", self._term, failure)


class Leadership:
    """Election in the background.

    Args:
        elector: takes the steps.
        store: keeps the lease.
        reaches: returns True if all servers of the routes can be reached from here.
    """

    def __init__(self, elector: Elector, store: LeaseStore, reaches: Callable[[], bool]) -> None:
        self.elector = elector
        self._store = store
        self._reaches = reaches
        self._background = Background("election of the leader", self._work, longest=1.0)
        # Servers that do not answer may not delay the election.
        self._watch = Background("watch of the routes' servers", self._check, every=_WATCH_SECONDS, longest=1.0)

    def start(self) -> None:
        """Stand for election."""
        self._background.start()
        self._watch.start()

    def _work(self) -> None:
        while not self._background.stopped.wait(self.elector.pause):
            self.elector.step()

    def _check(self) -> None:
        """Note whether this leader is cut off; as a standby, ask one that is for its lease."""
        elector = self.elector
        if elector.term is not None:
            before, elector.is_cut_off = elector.is_cut_off, not self._reaches()
            if elector.is_cut_off != before:
                state = "cannot be reached from here" if elector.is_cut_off else "answer again"
                _log.warning("servers of the routes %s", state)
                # Standbys read it at once; an election that fails is repeated by its own thread.
                with suppress(ConnectionLostError):
                    elector.step()
        elif elector.lease is not None and elector.lease.member.cut_off and self._reaches():
            elector.ask()

    def announce(self) -> None:
        """Have standbys look more often, as the lease is given back soon."""
        self.elector.is_leaving = True
        # A store that is slow does not hold the end up.
        run_once("announcement of the end", self.elector.step, level=logging.INFO)

    def resign(self) -> None:
        """Release the lease as soon as no task may write any more, whatever still runs."""
        # Tasks that hang on a server have not asked for long.
        self._background.stopped.wait(max(0.0, self.elector.retire()))
        self.elector.release()

    def close(self) -> None:
        """End the election, and give back the lease if this process has it."""
        self._watch.stop()
        self._background.close()
        self.elector.release()
        self._store.close()


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
        from turnout.subscriptions.stores.postgres import Database

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
