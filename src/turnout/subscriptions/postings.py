"""The in-process index: slot → text → entries. A probe is one lookup in a dict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from turnout.conditions.anchor import ALWAYS, Anchor, Kind, prober
from turnout.subscriptions.entries import Entry, verified

__all__ = ["Postings"]

_Slot: TypeAlias = tuple[Callable[[str], Collection[str]], dict[str, list[Entry]]]


class Postings:
    """Entries by their access anchors. Adding and removing cost no more than the entries themselves."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._keys: dict[str, dict[Kind, _Slot]] = {}
        self._always: list[Entry] = []
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Take the entry in."""
        key, kind, text = entry[0]
        if kind == ALWAYS.kind:
            self._always.append(entry)
            return
        slots = self._keys.setdefault(key, {})
        if kind not in slots:
            slots[kind] = (prober(Kind(*kind)), {})
        slots[kind][1].setdefault(text, []).append(entry)

    def remove(self, access: Anchor, subscription_id: str) -> None:
        """Drop the subscription's entries at this anchor."""
        if access == ALWAYS:
            self._always = [entry for entry in self._always if entry[1] != subscription_id]
            return
        slots = self._keys[access.key]
        texts = slots[access.kind][1]
        left = [entry for entry in texts.get(access.text, ()) if entry[1] != subscription_id]
        if left:
            texts[access.text] = left
            return
        texts.pop(access.text, None)
        # A slot that nothing is in any more would be probed for nothing.
        if not texts:
            del slots[access.kind]
        if not slots:
            del self._keys[access.key]

    def match(self, metadata: Mapping[str, str]) -> Iterator[Entry]:
        """The entries that are true of a message; at most one per subscription."""
        for entry in self._always:
            if verified(entry, metadata):
                yield entry
        for key, slots in self._keys.items():
            value = metadata.get(key)
            if value is None:
                continue
            for probe, texts in slots.values():
                for text in probe(value):
                    for entry in texts.get(text, ()):
                        if verified(entry, metadata):
                            yield entry

    def sizes(self) -> Iterator[tuple[Anchor, int]]:
        """Every anchor with the number of entries that it leads to."""
        if self._always:
            yield ALWAYS, len(self._always)
        for key, slots in self._keys.items():
            for kind, (_, texts) in slots.items():
                for text, entries in texts.items():
                    yield Anchor(key, kind, text), len(entries)
