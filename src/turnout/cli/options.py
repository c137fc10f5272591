"""Options and arguments that mean the same in several commands, and what they choose."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from turnout.base.clocks import parse_time
from turnout.base.terminal import did_you_mean
from turnout.base.untrusted import decimal
from turnout.errors import ConfigError, MissingExtraError, Mistake, SubscriptionNotFoundError, TurnoutError

if TYPE_CHECKING:
    from turnout.routes import Route
    from turnout.subscriptions import Store, Subscription
    from turnout.subscriptions.past import Moment


RouteFile: TypeAlias = Annotated[Path, typer.Argument(help="The route's YAML file.", dir_okay=False)]
RouteFiles: TypeAlias = Annotated[list[Path], typer.Argument(help="Route files, and folders of them.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Master: TypeAlias = Annotated[str, typer.Option(help="Spark's master.")]
SparkLog: TypeAlias = Annotated[Path | None, typer.Option(help="Where Spark's own messages go.")]
LogFormat: TypeAlias = Annotated[
    str | None, typer.Option(envvar="LOG_FORMAT", help="Form of the log on standard error: text or json. [text]")
]
PLACE = "a sequence, an ISO time, an age such as 10m, earliest, or {topic:partition: offset}"
"""Positions of a source, for the help of commands that begin at one."""

DEFAULT_STORE = "sqlite:///subscriptions.db"

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        help=f"sqlite:///…, postgresql://…, mongodb://… or grpc://host:port; DB_URI, or {DEFAULT_STORE}.",
    ),
]

StoreTimeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0.001, help="Seconds to wait for the store. [5; 30 for a locked SQLite file, gRPC]"),
]


def store_url_of(url: str | None, timeout: float | None = None) -> str:
    """Return the given URL, the environment's or the default, with *timeout* as its timeout."""
    from turnout.subscriptions.store_url import store_url, with_timeout

    url_or_default = store_url(os.environ, DEFAULT_STORE) if url is None else url
    return url_or_default if timeout is None else with_timeout(url_or_default, timeout)


def route_files(paths: list[Path]) -> list[Path]:
    """Return the route files among paths, with those of folders: what `turnout serve` runs there.

    Raises:
        ConfigError: a folder has none.
    """
    files: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            files[path] = None
            continue
        from turnout.server.routes.table import is_route

        found = sorted(filter(is_route, path.iterdir()))
        if not found:
            raise ConfigError([Mistake(str(path), "the folder has no route file: *.yaml or *.yml")])
        files |= dict.fromkeys(found)
    return list(files)


def loaded_route(file: Path, timeout: float | None) -> Route:
    """Load a route whose store is waited for as long as *timeout* says."""
    from turnout.routes import Route

    return in_time(Route.load(file), timeout)


def in_time(route: Route, timeout: float | None) -> Route:
    """Return the route with *timeout* as the timeout of its store."""
    part = route.subscriptions
    if part is None or timeout is None:
        return route
    return replace(route, subscriptions=part.model_copy(update={"store": store_url_of(part.store, timeout)}))


def check_store(route: Route) -> None:
    """Open the route's store and close it: before Spark is started, which takes seconds.

    Raises:
        TurnoutError: the store cannot be opened.
    """
    if route.subscriptions is not None:
        with opened_store(route.subscriptions.store):
            pass


@contextmanager
def opened_store(option: str | None, timeout: float | None = None, *, create: bool = False) -> Iterator[Store]:
    """Open the store, and close it at the end of the block; a missing store is created only with *create*."""
    from turnout.subscriptions import open_store
    from turnout.subscriptions.past import acting_as
    from turnout.subscriptions.store_url import existing

    url = store_url_of(option, timeout)
    with closing(open_store(url if create else existing(url))) as store, acting_as(_user()):
        try:
            yield store
        except SubscriptionNotFoundError as missing:
            try:
                known = store.search_by_metadata({}, limit=_COMPARED_IDS).items
            except TurnoutError:
                # A caller may have the right to delete, and none to search: the error is the first one.
                raise missing from None
            raise SubscriptionNotFoundError(missing.id, did_you_mean(missing.id, (one.id for one in known))) from None


_COMPARED_IDS = 500
"""Number of ids with which an unknown one is compared, for a proposal."""


def log_as(form: str | None, level: str = "info") -> bool:
    """Have this process log JSON lines, if that is the form; return True for these.

    Raises:
        ConfigError: there is no such form.
    """
    if form in (None, "text"):
        return False
    if form != "json":
        raise ConfigError([Mistake("--log-format", f"expected text or json, found {form!r}")])
    from turnout.base.terminal import set_up_logs

    set_up_logs(form, level)
    return True


def _user() -> str:
    """Return the name of the user who runs the command; "" in a container without users."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


@contextmanager
def needs_spark() -> Iterator[None]:
    """Import what needs Spark in this block.

    Raises:
        MissingExtraError: it is not installed; any other module that is missing is raised as it is.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in ("pyspark", "pyarrow", "numpy"):
            raise
        raise MissingExtraError("spark", missing.name or "pyspark") from missing


AsOf: TypeAlias = Annotated[
    str,
    typer.Option("--subscriptions-as-of", metavar="TIME|REVISION", help="Match with the subscriptions of then."),
]
"""The option, for commands that match."""


def moment_of(text: str, option: str) -> Moment | None:
    """Return the revision or time in a text; None for ``now``.

    Raises:
        ConfigError: it names neither.
    """
    if text == "now":
        return None
    revision = decimal(text)
    if revision is not None:
        return revision
    try:
        return parse_time(text)
    except ValueError:
        problem = f"expected a revision, an ISO 8601 time or now, found {text!r}"
        raise ConfigError([Mistake(option, problem)]) from None


def check_places(start: str | None, end: str | None) -> None:
    """Check the places of ``--from`` and ``--to``, so that an error names the option.

    Raises:
        ConfigError: one is no place.
    """
    from turnout.nats.wire.streams import position_of

    for option, text in (("--from", start), ("--to", end)):
        if text is not None:
            position_of(option, text)


def moments_of(text: str, option: str) -> tuple[Moment | None, Moment | None]:
    """Parse two moments, ``THEN..NOW``; a single moment is both. None for ``now`` and for an empty part.

    Raises:
        ConfigError: a part names no moment.
    """
    first, dots, second = text.partition("..")
    parts = (first, second) if dots else (first, first)
    old, new = (moment_of(part or "now", option) for part in parts)
    return old, new


def subscriptions_of(
    route: Route, as_of: str = "now", option: str = "--subscriptions-as-of"
) -> tuple[Subscription, ...]:
    """Return the subscriptions of the route's store, now or at a past moment; none for a route without subscriptions.

    Raises:
        ConfigError: *as_of* is no moment.
        HistoryForgottenError: the store does not remember so far back.
    """
    moment = moment_of(as_of, option)
    if route.subscriptions is None:
        return ()
    from turnout.subscriptions.store import snapshot_of

    return snapshot_of(route.subscriptions.store, moment).subscriptions
