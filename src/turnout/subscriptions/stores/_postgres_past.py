"""History of a PostgreSQL store: replaced and deleted subscriptions, and the times and actors of revisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnout.base.clocks import TrustedClock
from turnout.subscriptions.actor import current_actor
from turnout.subscriptions.audit import RecordedMoment
from turnout.subscriptions.past import Creation, Moment, Span, due_before
from turnout.subscriptions.stores._postgres_driver import Connection, Statement

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""The server's time in microseconds since 1970: one clock for all machines that write."""


class PostgresPast:
    """Statements on the tables of the past; each takes the connection of its caller's transaction.

    Args:
        statement: makes a statement of a text with ``{schema}`` in it.
        retention: seconds for which the past is remembered.
    """

    def __init__(self, statement: Callable[[str], Statement], retention: float) -> None:
        self._statement = statement
        self.retention = retention
        self._server_time = 0.0
        self._clock = TrustedClock(lambda: self._server_time)

    def _execute(self, connection: Connection, text: str, parameters: tuple[object, ...] = ()) -> Any:
        return connection.execute(self._statement(text), parameters)

    def note_time(self, connection: Connection, revision: int) -> None:
        """Record the server's time of a revision, and its actor; a wrong reading does not affect later revisions."""
        actor = current_actor().replace("\0", "")
        query = f"INSERT INTO {{schema}}.moment VALUES (%s, {_NOW}, %s)"  # noqa: S608 - no input
        self._execute(connection, query, (revision, actor))

    def archive(self, connection: Connection, ids: list[str], died: int) -> None:
        """Remember the present versions of ids, which end at a revision."""
        if self.retention:
            query = (
                "INSERT INTO {schema}.past SELECT id, %s, revision, record FROM {schema}.subscription"
                " WHERE id = ANY(%s)"
            )
            self._execute(connection, query, (died, ids))

    def forget(self, connection: Connection) -> None:
        """Drop everything older than the retention; see `turnout.subscriptions.stores._sqlite_past.forget`."""
        newest = "SELECT at FROM {schema}.moment ORDER BY revision DESC LIMIT 1 OFFSET 1"
        recorded = self._execute(connection, newest).fetchone()
        self._server_time = self._execute(connection, f"SELECT {_NOW}").fetchone()[0] / 1e6
        limit = due_before(self._clock, self.retention, recorded[0] if recorded else None)
        due = (
            "SELECT max(own.revision) FROM {schema}.moment AS own"
            " LEFT JOIN {schema}.moment AS before ON before.revision = own.revision - 1"
            " WHERE own.at <= %s AND coalesce(before.at, own.at) <= %s"
        )
        oldest = self._execute(connection, due, (limit, limit)).fetchone()[0]
        if oldest is not None:
            self._execute(connection, "UPDATE {schema}.state SET remembered = greatest(remembered, %s)", (oldest,))
            self._execute(connection, "DELETE FROM {schema}.past WHERE died <= %s", (oldest,))
            self._execute(connection, "DELETE FROM {schema}.moment WHERE revision < %s", (oldest,))

    def revision_at(self, connection: Connection, moment: Moment) -> int:
        """Return the revision of a moment.

        Raises:
            HistoryForgottenError: the store does not know so far back.
        """
        first, last, since = self._execute(
            connection,
            "SELECT remembered, state.revision, coalesce(at, 0) FROM {schema}.state"
            " LEFT JOIN {schema}.moment ON remembered > 0 AND moment.revision = remembered",
        ).fetchone()

        def last_until(at: int) -> int | None:
            query = "SELECT max(revision) FROM {schema}.moment WHERE at <= %s"
            revision: int | None = self._execute(connection, query, (at,)).fetchone()[0]
            return revision

        return Span(first, last, since).revision(moment, last_until)

    def versions(self, connection: Connection, id_: str) -> list[tuple[str, int, int | None]]:
        """Return the remembered versions of an id, each with its record and the revisions of its beginning and end."""
        query = (
            "SELECT record, born, died FROM {schema}.past WHERE id = %s"
            " UNION ALL SELECT record, revision, NULL FROM {schema}.subscription WHERE id = %s"
        )
        rows: list[tuple[str, int, int | None]] = self._execute(connection, query, (id_, id_)).fetchall()
        return rows

    def remembered(self, connection: Connection) -> int:
        """Return the oldest revision whose state the store knows."""
        first: int = self._execute(connection, "SELECT remembered FROM {schema}.state").fetchone()[0]
        return first

    def recorded(self, connection: Connection, revision: int) -> RecordedMoment | None:
        """Return the time and the actor of a revision."""
        query = "SELECT at, actor FROM {schema}.moment WHERE revision = %s"
        row = self._execute(connection, query, (revision,)).fetchone()
        return None if row is None else RecordedMoment(*row)

    def births(self, connection: Connection, bounds: str, limits: tuple[str, ...]) -> dict[str, Creation]:
        """Return the creation of each present version with an id between some bounds."""
        query = (
            "SELECT id, subscription.revision, at FROM {schema}.subscription"  # noqa: S608 - no input
            f" LEFT JOIN {{schema}}.moment USING (revision) WHERE {bounds}"
        )
        rows = self._execute(connection, query, limits)
        return {id_: Creation.of(revision, at) for id_, revision, at in rows}
