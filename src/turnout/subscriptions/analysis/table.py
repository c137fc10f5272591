"""Subscriptions as an Arrow table, one row for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

from turnout.conditions import format_condition
from turnout.subscriptions.analysis.report import Catalogue
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.past import Creation
from turnout.subscriptions.tenants import tenant_of

TABLE: Final = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("tenant", pa.string()),
        pa.field("destinations", pa.list_(pa.string())),
        pa.field("metadata", pa.map_(pa.string(), pa.string())),
        pa.field("condition", pa.string()),
        pa.field("digest", pa.string()),
        pa.field("anchors", pa.list_(pa.string())),
        pa.field("created_revision", pa.int64()),
        pa.field("created_at", pa.timestamp("us", tz="UTC")),
    ]
)
"""The columns. ``digest`` is that of the normal form: equal ones match the same messages; ``anchors`` is what a
subscription is looked up by; ``tenant`` and the last two are null where there is none, or where it is not known."""


def table_of(subscriptions: Iterable[Subscription], births: Mapping[str, Creation]) -> object:
    """Return the `pyarrow.Table` of some subscriptions, in no order.

    Args:
        subscriptions: none twice.
        births: creation time of each, if known.
    """
    catalogue = Catalogue(subscriptions)
    terms = catalogue.terms()
    rows = list(catalogue.forms())
    born = [births.get(subscription.id) for subscription, _ in rows]
    columns = [
        [subscription.id for subscription, _ in rows],
        [tenant_of(subscription.id) or None for subscription, _ in rows],
        [list(subscription.destinations) for subscription, _ in rows],
        [list(subscription.metadata.items()) for subscription, _ in rows],
        [format_condition(subscription.condition) for subscription, _ in rows],
        [form.digest for _, form in rows],
        [list(dict.fromkeys(str(term.access) for term in terms[subscription.id])) for subscription, _ in rows],
        [None if birth is None else birth.revision for birth in born],
        [None if birth is None else birth.at for birth in born],
    ]
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, TABLE, strict=True)], schema=TABLE
    )
