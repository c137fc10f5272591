"""``/v1/routes/{name}/explain``: what becomes of one record, from its bytes to its messages, and why."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa
from fastapi import APIRouter
from pydantic import Field, model_validator

from turnout.engine import Program
from turnout.engine.explain import explain
from turnout.engine.given import Given, record_batch
from turnout.errors import ConfigError, Mistake
from turnout.routes import Route
from turnout.routes.endpoints import NatsSource
from turnout.server.errors import ConflictError
from turnout.server.rest.models import Form
from turnout.server.rest.parts import Reads, TheParts
from turnout.server.sources import opened, streams_of
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.address import existing
from turnout.subscriptions.index import Index
from turnout.wire import stored_message

__all__ = ["Interests", "explain_record", "router"]

router = APIRouter(prefix="/v1/routes/{name}", tags=["routes"])


class ExplainForm(Form):
    """The record: as it stands, or by its place."""

    record: dict[str, Any] | None = Field(
        default=None, description="topic, key, value, headers (name: text), timestamp, partition, offset"
    )
    at: str | None = Field(default=None, description="stream:sequence of a message in the route's source")
    subscription: str | None = Field(default=None, description="say why this one does not get the record")

    @model_validator(mode="after")
    def _one(self) -> ExplainForm:
        if (self.record is None) == (self.at is None):
            raise ValueError("needs exactly one of record and at")
        return self


class Interests:
    """The subscriptions of stores, indexed when they are first asked for and again when they have changed.

    Safe to use from several threads.
    """

    _KEPT = 4

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[int, Index, Mapping[str, Subscription]]] = OrderedDict()

    def of(self, url: str) -> tuple[Index, Mapping[str, Subscription]]:
        """The index of a store, and its subscriptions by id.

        Raises:
            ConfigError: there is no such store.
            StoreUnavailableError: it is away.
        """
        with self._lock, closing(open_store(existing(url))) as store:
            revision = store.revision()
            known = self._known.get(url)
            if known is None or known[0] != revision:
                subscriptions = {one.id: one for one in store.snapshot().subscriptions}
                known = (revision, Index.of(list(subscriptions.values())), subscriptions)
                self._known[url] = known
            self._known.move_to_end(url)
            while len(self._known) > self._KEPT:
                self._known.popitem(last=False)
            return known[1], known[2]


_interests = Interests()


@router.post("/explain", summary="What becomes of one record, and why; nothing is delivered")
def explain_record(name: str, form: ExplainForm, parts: TheParts, _: Reads) -> dict[str, Any]:
    """Every stage before and after, the mapping, who wants the record, what goes out; or why it does not."""
    entry = parts.routes.entry(name)
    if entry.version is None:
        raise ConflictError(f"route {name} cannot be used: {entry.status.reason}")
    route = entry.version.route
    batch = record_batch([Given.of(form.record)]) if form.record is not None else _fetched(route, str(form.at))
    index: Index | None = None
    subscriptions: Mapping[str, Subscription] = {}
    if route.subscriptions is not None:
        index, subscriptions = _interests.of(route.subscriptions.store)
    return explain(Program.of(route), batch, index, subscriptions, asked=form.subscription).as_dict()


def _fetched(route: Route, at: str) -> Any:
    stream, _, sequence = at.rpartition(":")
    source = route.source
    if not isinstance(source, NatsSource):
        raise ConflictError(f"route {route.name} does not read a stream: give the record itself")
    known = streams_of(source)
    if stream not in known or not sequence.isdecimal():
        raise ConfigError(
            [Mistake("at", f"expected stream:sequence with a stream of {', '.join(known)}, found {at!r}")]
        )
    with opened(source) as connection:
        batch = stored_message(connection, stream, int(sequence))
    return batch.append_column("stream", pa.array([stream], pa.string()))
