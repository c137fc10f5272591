"""Client for matching messages with a subscriptions service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from turnout.conditions import Condition, Explanation, Group
from turnout.rpc.channel import Channel
from turnout.rpc.convert import condition_from, metadata_to
from turnout.rpc.message_parts import changes_of
from turnout.rpc.status import translated
from turnout.rpc.v1 import matching_pb2
from turnout.rpc.v1.matching_pb2_grpc import MatchingStub
from turnout.subscriptions import (
    Changes,
    Match,
)


class MatchingClient:
    """Client for matching messages with a subscriptions service."""

    def __init__(self, channel: Channel) -> None:
        self._options = channel
        self._channel = channel.open()
        self._stub = MatchingStub(self._channel)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def match(self, metadata: Mapping[str, object]) -> list[Match]:
        """Return every subscription that matches the message; values are as in `Matcher.match`."""
        with translated():
            request = matching_pb2.MatchRequest(**metadata_to(metadata))
            return _matches(self._stub.Match(request, **self._options.call()))

    def match_stream(self, messages: Iterable[Mapping[str, object]]) -> Iterator[list[Match]]:
        """Yield the matches of each message, in the order of the messages."""
        requests = (matching_pb2.MatchRequest(**metadata_to(metadata)) for metadata in messages)
        with translated():
            yield from map(_matches, self._stub.MatchStream(requests, **self._options.call(endless=True)))

    def explain(self, id: str, metadata: Mapping[str, object]) -> Explanation:  # noqa: A002 - the field's own name
        """Explain the match or mismatch between a subscription and the message."""
        request = matching_pb2.ExplainRequest(subscription_id=id, **metadata_to(metadata))
        with translated():
            response = self._stub.Explain(request, **self._options.call())
        return _explanation(response.explanation, condition_from(response.condition))

    def watch(self, since: int = 0) -> Iterator[Changes]:
        """Yield changes after a revision as they occur. Close the iterator to stop.

        Raises:
            StoreUnavailableError: the connection was lost; watch again from the last revision.
        """
        call = self._stub.Watch(matching_pb2.WatchRequest(since=since), **self._options.call(endless=True))
        try:
            with translated():
                yield from changes_of(call)
        finally:
            call.cancel()


def _matches(response: matching_pb2.MatchResponse) -> list[Match]:
    return [
        Match(match.subscription_id, tuple(match.destinations), tuple(match.condition_ids))
        for match in response.matches
    ]


def _explanation(message: matching_pb2.Explanation, condition: Condition) -> Explanation:
    nodes = condition.children if isinstance(condition, Group) else ()
    children = (_explanation(*pair) for pair in zip(message.children, nodes, strict=True))
    return Explanation(condition, message.holds, message.reason, tuple(children))
