"""Changes of a route, and their effect on its checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from turnout.routes.endpoints import Endpoint
from turnout.routes.values import listed
from turnout.secrets import is_secret

Verdict = Literal["safe", "needs_new_checkpoint"]


@dataclass(frozen=True, slots=True)
class Change:
    """Difference between two versions of a route.

    Attributes:
        change: the changed setting, by its path in the file.
        verdict: whether the new version can continue from the checkpoint of the old one.
        reason: why, in a sentence.
        uncovers: whether content that was masked or removed may be delivered as it is.
    """

    change: str
    verdict: Verdict
    reason: str
    uncovers: bool = False

    @property
    def safe(self) -> bool:
        """True if the new version can continue from the checkpoint."""
        return self.verdict == "safe"


def unsafe_change(change: str, reason: str) -> Change:
    """Return a change after which positions in the checkpoint mean something else, or nothing."""
    return Change(change, "needs_new_checkpoint", reason)


def safe_change(change: str, reason: str) -> Change:
    """Return a change after which the checkpoint can be used."""
    return Change(change, "safe", reason)


def server_changes(old: Endpoint, new: Endpoint, reason: str) -> Iterator[Change]:
    """Yield the change of the servers; it is safe if an address is common to both versions.

    Args:
        old: the source before.
        new: the source after.
        reason: why positions at other servers mean nothing.
    """
    written = [listed(getattr(source, "servers", None)) for source in (old, new)]
    if written[0] == written[1]:
        return
    before, after = ({host.rstrip("/").lower() for host in source.hosts} for source in (old, new))
    if before & after:
        yield safe_change("source.servers", "at least one address is as before: it is the same cluster")
    else:
        yield unsafe_change("source.servers", reason)


def other_changes(old: Endpoint, new: Endpoint, handled: Collection[str]) -> Iterator[Change]:
    """Yield changes of options that do not affect positions."""
    before, after = (version.model_dump(by_alias=True) for version in (old, new))
    for name in before:
        if name in handled or before[name] == after[name]:
            continue
        if name == "start":
            reason = "it has an effect where there is no checkpoint; reset the offsets to go elsewhere"
            yield safe_change("source.start", reason)
        elif is_secret(name):
            yield safe_change(f"source.{name}", "the reader does not affect the records")
        else:
            yield safe_change(f"source.{name}", "it changes how the source is read, and not where")
