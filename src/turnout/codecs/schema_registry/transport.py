"""Exchanges of Confluent's client within limits: a total time and a size for each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from turnout.http_exchange import AnswerTooLargeError, exchange

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

_MAX_ANSWER_BYTES: Final = 16 << 20
"""Bytes of an answer that are read: a schema has 4 MiB at most."""


def limit_exchanges(client: SchemaRegistryClient, seconds: float) -> None:
    """Have a client send its requests by `turnout.http_exchange.exchange`.

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
