"""``webhooks`` of a route: where deliveries to HTTP endpoints wait, and the endpoints that have names and secrets."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from turnout.errors import ConfigError
from turnout.routes.endpoints import Part
from turnout.routes.endpoints.base import FormatBlock
from turnout.routes.values import StreamName
from turnout.secrets import Secrecy
from turnout.subjects import is_publishable
from turnout.subjects.pattern import Rights
from turnout.subscriptions.credentials import MAX_SECRETS, Credentials, secret_bytes
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.destinations import NAMED, delivery_subject, is_url, webhook_problem


def _secret(secret: str) -> str:
    secret_bytes(secret)
    return secret


Secrets = Annotated[list[Annotated[str, AfterValidator(_secret)]], Field(max_length=MAX_SECRETS), Secrecy.SECRET]


SHARES: Final = 8
"""Parts of the endpoints of a stream, which dispatchers divide among themselves."""

ConsentKind = Literal["none", "cloudevents", "challenge"]


class WebhookEndpoint(Part):
    """HTTP endpoint that destinations name as ``webhook:NAME``.

    Attributes:
        url: URL of the requests.
        secrets: sign each request, each with its own signature: two while one is replaced by another.
        credentials: secret headers, basic authentication, OAuth 2 or a client's certificate of each request; their
            values are variables.
        delivery: settings of requests for subscriptions without settings of their own.
    """

    url: str
    secrets: Secrets = Field(default_factory=list)
    credentials: Annotated[dict[str, object] | None, Secrecy.SECRET] = None
    delivery: dict[str, object] | None = None

    @field_validator("url")
    @classmethod
    def _url(cls, url: str) -> str:
        problem = webhook_problem(url) if is_url(url) else "is no URL: expected https://…"
        if problem is not None:
            raise ValueError(problem)
        return url

    @field_validator("credentials")
    @classmethod
    def _credentials(cls, credentials: dict[str, object] | None) -> dict[str, object] | None:
        if credentials is not None:
            try:
                Credentials.from_mapping(credentials)
            except ConfigError as problem:
                raise ValueError("; ".join(map(str, problem.mistakes))) from None
        return credentials

    @field_validator("delivery")
    @classmethod
    def _delivery(cls, delivery: dict[str, object] | None) -> dict[str, object] | None:
        if delivery is not None:
            for key in ("secrets", "credentials"):
                if key in delivery:
                    raise ValueError(f"{key}: in a route they belong beside delivery")
            try:
                DeliverySettings.from_mapping(delivery)
            except ConfigError as problem:
                raise ValueError("; ".join(map(str, problem.mistakes))) from None
        return delivery

    @property
    def read_credentials(self) -> Credentials | None:
        """Credentials of requests; None for none."""
        return None if self.credentials is None else Credentials.from_mapping(self.credentials)

    @property
    def settings(self) -> DeliverySettings:
        """Settings of requests."""
        return DeliverySettings.from_mapping(self.delivery or {})


class WebhooksPart(Part):
    """Deliveries to HTTP endpoints: destinations that are URLs, or ``webhook:NAME``.

    Attributes:
        stream: the JetStream stream, or Kafka topic, in which deliveries wait for ``turnout deliver``; made if there
            is none.
        subject: the first tokens of the deliveries' subjects.
        sink: the name of the sink that has the stream or topic; the first sink if not given.
        secrets: sign requests to URLs that no endpoint has.
        endpoints: name → endpoint.
        allow: networks that may be reached although they are private, loopback or link-local; http:// leads to
            these alone.
        value: format of the requests' bodies; that of the sink's values if not given.
        proxy: URL of the HTTP proxy that requests go through; ``environment`` for HTTPS_PROXY and HTTP_PROXY, ``none``
            to connect directly. Hosts of NO_PROXY are reached directly in each case.
        proxy_lookups: whether the proxy looks names up, and decides which addresses are reached; otherwise names are
            looked up and checked here, and tunnels lead to the checked address.
        consent: how an endpoint is asked, once, that a subscription names by its URL, before messages are posted to it:
            none, cloudevents (its webhook validation) or challenge (a random text that it has to repeat).
        origin: name of the sender for cloudevents: a DNS name, as ``turnout.example``.
        notices: where a notice is stored when an endpoint is disabled: ``webhook:NAME``, or a subject or topic of the
            sink; none if not given.
    """

    stream: StreamName = "DELIVERIES"
    subject: str = "deliver"
    sink: str | None = None
    secrets: Secrets = Field(default_factory=list)
    endpoints: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")], WebhookEndpoint] = Field(
        default_factory=dict
    )
    allow: list[str] = Field(default_factory=list)
    value: FormatBlock = None
    proxy: str = "environment"
    proxy_lookups: bool = False
    consent: ConsentKind = "none"
    origin: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]{1,253}$")] | None = None
    notices: str | None = None

    @field_validator("stream")
    @classmethod
    def _stream(cls, stream: str | None) -> str:
        return stream or "DELIVERIES"

    @field_validator("subject")
    @classmethod
    def _subject(cls, subject: str) -> str:
        if not is_publishable(subject) or len(subject) > 100 or Rights().refusal(f"{subject}.x"):
            raise ValueError(f"found {subject!r:.60}, expected a subject of at most 100 characters")
        return subject

    @field_validator("proxy")
    @classmethod
    def _proxy(cls, proxy: str) -> str:
        parts = urlsplit(proxy)
        if proxy not in ("environment", "none") and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("expected environment, none, or http://HOST:PORT of a proxy")
        return proxy

    @field_validator("allow")
    @classmethod
    def _networks(cls, allow: list[str]) -> list[str]:
        for text in allow:
            ip_network(text)
        return allow

    @model_validator(mode="after")
    def _origin(self) -> Self:
        if self.consent == "cloudevents" and self.origin is None:
            raise ValueError("origin: missing; consent: cloudevents needs the DNS name of the sender")
        return self

    @model_validator(mode="after")
    def _notices(self) -> Self:
        notices = self.notices
        if notices is None:
            return self
        if notices.startswith(NAMED):
            if notices.removeprefix(NAMED) not in self.endpoints:
                known = ", ".join(f"{NAMED}{name}" for name in self.endpoints) or "none"
                raise ValueError(f"notices: there is no endpoint {notices!r:.80}; there are: {known}")
        elif not is_publishable(notices) or notices.startswith((f"{self.subject}.", f"{self.dead_subject}.")):
            raise ValueError(f"notices: expected webhook:NAME, or a subject of others, found {notices!r:.80}")
        return self

    @property
    def notice_subject(self) -> str | None:
        """Subject of notices, which may be that of a delivery; None for no notices."""
        is_endpoint = self.notices is not None and self.notices.startswith(NAMED)
        return delivery_subject(self.subject, str(self.notices), "") if is_endpoint else self.notices

    def sink_index(self, sinks: Sequence[str]) -> int:
        """Return the index of the sink that has the streams among a route's, by their names."""
        return 0 if self.sink is None else sinks.index(self.sink)

    @property
    def streams(self) -> tuple[str, str]:
        """Names of the stream of waiting deliveries, and of that of dead letters."""
        return str(self.stream), f"{self.stream}-dead"

    @property
    def division(self) -> tuple[str, str]:
        """Transform of the stream's subjects that gives those of an endpoint the number of its share."""
        target = f"{self.subject}.{{{{partition({SHARES},1)}}}}.{{{{wildcard(1)}}}}.{{{{wildcard(2)}}}}"
        return f"{self.subject}.*.*", target

    @property
    def topics(self) -> tuple[str, str, str]:
        """Names of Kafka's topics: of waiting deliveries, of dead letters, and of failed attempts."""
        return (*self.streams, f"{self.stream}-attempts")

    @property
    def group(self) -> str:
        """Consumer group of the dispatchers that share a Kafka topic."""
        return f"turnout-deliver.{self.stream}"

    @property
    def networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Networks that may be reached although they are not public."""
        return tuple(map(ip_network, self.allow))

    @property
    def dead_subject(self) -> str:
        """First tokens of the subjects of deliveries that are given up."""
        return f"{self.subject}-dead"

    def needs_consent(self, destination: str) -> bool:
        """Return True for an endpoint that is asked first: a URL of a subscription, and not one of the route."""
        is_own = any(endpoint.url == destination for endpoint in self.endpoints.values())
        return self.consent != "none" and is_url(destination) and not is_own

    def endpoint_of(self, destination: str) -> WebhookEndpoint | None:
        """Return the endpoint of a destination; None for a name that no endpoint has."""
        if destination.startswith(NAMED):
            return self.endpoints.get(destination.removeprefix(NAMED))
        named = (endpoint for endpoint in self.endpoints.values() if endpoint.url == destination)
        return next(named, None) or WebhookEndpoint(url=destination, secrets=self.secrets)
