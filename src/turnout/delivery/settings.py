"""Settings and endpoints of deliveries: from the route and from the subscriptions of its store."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final
from weakref import WeakValueDictionary

from yarl import URL

from turnout.delivery.access import Access, CertificateError, TokenSource, client_context
from turnout.delivery.client import Client, Target
from turnout.delivery.lane import Endpoint, EndpointLimits, Lane, TenantRate, TenantRates
from turnout.delivery.requests import Signer
from turnout.errors import ConfigError, StoreUnavailableError, SubscriptionNotFoundError, message_of
from turnout.routes.webhooks import WebhookEndpoint, WebhooksPart
from turnout.subscriptions import Store
from turnout.subscriptions.credentials import Credentials, HeaderNames
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.destinations import delivery_address, webhook_problem
from turnout.subscriptions.sealing import SealError, opened_secrets
from turnout.subscriptions.tenants import tenant_of

_MAX_LANES = 10_000
_MAX_SUBJECTS = 100_000
_DEFAULTS = DeliverySettings()


class Lanes:
    """Lanes by the subjects of deliveries.

    Deliveries of subscriptions without settings share their endpoint's lane, and its limits. Those of a tenant with a
    quota of deliveries have lanes apart, so that a tenant that waits holds up no others.

    Args:
        webhooks: webhooks of the route.
        store: store of its subscriptions.
        client: gets the tokens of endpoints.
    """

    def __init__(self, webhooks: WebhooksPart, store: Store, client: Client) -> None:
        self._webhooks = webhooks
        self._store = store
        self._endpoints = Endpoints(client, webhooks)
        self._revision = 0
        self._by_subject: dict[str, tuple[Lane, str]] = {}
        self._lanes: dict[tuple[str, str, DeliverySettings, str], Lane] = {}
        self._limits: WeakValueDictionary[str, EndpointLimits] = WeakValueDictionary()
        self._rates = TenantRates(store)
        self._subjects_of: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def all(self) -> tuple[Lane, ...]:
        """Return all lanes; any thread may ask."""
        return tuple(self._lanes.values())

    def known(self, subject: str) -> tuple[Lane, str] | None:
        """Return the lane and the subscription of a subject; None if the store has to be queried."""
        return self._by_subject.get(subject)

    async def open(self, subject: str) -> tuple[Lane, str] | str:
        """Return the lane and the subscription of a subject after asking the store; the reason if it has none.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        address = delivery_address(self._webhooks.subject, subject)
        if address is None:
            return "its subject has no endpoint"
        destination, subscription = address
        if (wrong := webhook_problem(destination)) is not None:
            return f"its subject has no endpoint: {destination!a:.200} {wrong}"
        try:
            own, quota = await asyncio.to_thread(self._own, subscription) if subscription else (None, None)
        except StoreUnavailableError:
            raise
        except Exception as failure:  # noqa: BLE001 - one damaged subscription is a failure of its own deliveries
            problem = f"the subscription {subscription!r} cannot be read: {type(failure).__name__}: {failure}"
            return Lane(Endpoint(destination, None, Signer(()), problem), _DEFAULTS), subscription
        endpoint = self._webhooks.endpoint_of(destination)
        settings = own or (endpoint.settings if endpoint is not None else _DEFAULTS)
        tenant = "" if quota is None else tenant_of(subscription)
        key = (destination, subscription if own is not None else "", settings, tenant)
        lane = self._lanes.get(key)
        if lane is None:
            self._prune()
            lane = self._lanes[key] = Lane(
                await self._endpoints.of(destination, endpoint, subscription, own),
                settings,
                subscription=key[1],
                tenant=tenant,
                quota=quota,
                limits=self._limits.setdefault(destination, EndpointLimits()),
            )
        elif lane.endpoint.problem:
            # The file with the keys may have others now.
            lane.endpoint = await self._endpoints.of(destination, endpoint, subscription, own)
        if endpoint is not None and lane.endpoint.problem:
            return lane, subscription
        if len(self._by_subject) >= _MAX_SUBJECTS:
            self.forget()
        self._by_subject[subject] = lane, subscription
        self._subjects_of.setdefault(subscription, []).append(subject)
        return lane, subscription

    def _own(self, subscription: str) -> tuple[DeliverySettings | None, TenantRate | None]:
        """Return the settings of a subscription, and the rate of its tenant."""
        quota = self._rates.of(subscription)
        try:
            return self._store.read(subscription).delivery, quota
        except SubscriptionNotFoundError:
            # Messages that it has matched are delivered nevertheless.
            return None, quota

    def _prune(self) -> None:
        if len(self._lanes) < _MAX_LANES:
            return
        idle = {key for key, lane in self._lanes.items() if not lane.held and not lane.breaker.is_open}
        self._lanes = {key: lane for key, lane in self._lanes.items() if key not in idle}
        self.forget()

    def forget(self) -> None:
        """Look the settings of all deliveries up again."""
        self._by_subject.clear()
        self._subjects_of.clear()

    async def refresh(self) -> None:
        """Request changes from the store; the settings of changed subscriptions are read with their next message.

        Raises:
            SubscriptionError: the store does not answer.
        """
        revision = await asyncio.to_thread(self._store.revision)
        if revision == self._revision:
            return
        changes = await asyncio.to_thread(self._store.changes, self._revision) if self._revision else None
        self._revision = revision
        if changes is None or changes.reset:
            self._rates.reset()
            self.forget()
            return
        if self._rates.follow(changes.created):
            self.forget()
        for id_ in (*changes.deleted_ids, *(one.id for one in changes.created)):
            for subject in self._subjects_of.pop(id_, ()):
                self._by_subject.pop(subject, None)


_MAX_ACCESSES: Final = 10_000


class Endpoints:
    """Receivers of lanes, with what proves the sender to them.

    Lanes with the same credentials share a token, and the connections with a client's certificate.

    Args:
        client: gets their tokens.
        webhooks: webhooks of the route.
    """

    def __init__(self, client: Client, webhooks: WebhooksPart) -> None:
        self._client = client
        self._webhooks = webhooks
        self._accesses: dict[Credentials, tuple[Access, ssl.SSLContext | None]] = {}

    async def of(
        self, destination: str, endpoint: WebhookEndpoint | None, subscription: str, own: DeliverySettings | None
    ) -> Endpoint:
        """Return the receiver of a lane.

        Args:
            destination: as the subscription has it.
            endpoint: of the route; None for a name that it does not have.
            subscription: id of the subscription; "" for none.
            own: its settings, whose secrets and credentials are used in place of the endpoint's.
        """
        if endpoint is None:
            return Endpoint(destination, None, Signer(()), f"the route has no endpoint {destination!r}")
        try:
            secrets = opened_secrets(subscription, own.secrets) if own is not None and own.secrets else endpoint.secrets
            credentials = _credentials(subscription, own) or endpoint.read_credentials
            if credentials is not None:
                _check_names(credentials, own or endpoint.settings)
            access, tls = (None, None) if credentials is None else await self._access(credentials)
        except SealError as problem:
            what = f"the secrets of the subscription {subscription!r} cannot be used"
            return Endpoint(destination, None, Signer(()), f"{what}: {problem}")
        except (ConfigError, CertificateError, ValueError) as problem:
            what = f"the credentials for {endpoint.url!r:.200} cannot be used"
            return Endpoint(destination, None, Signer(()), f"{what}: {message_of(problem)}")
        try:
            target = Target.of(URL(endpoint.url, encoded=True), tls=tls)
        except ValueError as problem:
            # The rules for destinations are those of a release: a store may have one that an earlier release took.
            what = f"no request can be sent to {endpoint.url!r:.200}"
            return Endpoint(destination, None, Signer(()), f"{what}: {problem}")
        needs_consent = self._webhooks.needs_consent(destination)
        return Endpoint(destination, target, Signer(secrets), access=access, needs_consent=needs_consent)

    async def _access(self, credentials: Credentials) -> tuple[Access, ssl.SSLContext | None]:
        known = self._accesses.get(credentials)
        if known is None:
            if len(self._accesses) >= _MAX_ACCESSES:
                self._accesses.clear()
            login, certificate = credentials.oauth2, credentials.certificate
            tls = None if certificate is None else await asyncio.to_thread(client_context, certificate)
            tokens = None if login is None else TokenSource(login, self._client, credentials)
            known = self._accesses[credentials] = Access(credentials, tokens), tls
        return known


def _check_names(credentials: Credentials, settings: DeliverySettings) -> None:
    """Refuse a secret header in place of one that identifies or signs the request.

    Raises:
        ValueError: names it.
    """
    own = {name.lower() for name in HeaderNames.of(settings.header_names)}
    if (taken := next((name for name, _ in credentials.headers if name.lower() in own), None)) is not None:
        raise ValueError(f"{taken} is the name of a header of headerNames")


def _credentials(subscription: str, own: DeliverySettings | None) -> Credentials | None:
    """Return the credentials of a subscription, decrypted; None for none."""
    if own is None or own.credentials is None:
        return None
    (text,) = opened_secrets(subscription, [own.credentials])
    return Credentials.from_text(text)


_MAX_HELD_DELIVERIES: Final = 8_192
"""Deliveries in memory over all lanes, as far as lanes without an order are concerned."""

_STALLED_SECONDS: Final = 0.1
"""A full lane that had no response for so long does not hold up the others."""


class Capacity:
    """Space that lanes share.

    Args:
        lanes: lanes of the dispatcher.
    """

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._freed = asyncio.Event()

    def has_space(self, lane: Lane) -> bool:
        """Return True if a lane may have one more delivery without an order in memory."""
        share = min(1_024, _MAX_HELD_DELIVERIES // (len(self._lanes) + 1))
        return lane.held < max(2 * lane.settings.concurrency, share)

    def freed(self) -> None:
        """Wake up the callers of `wait`."""
        self._freed.set()

    async def wait(self, lane: Lane) -> bool:
        """Wait for space in a lane that makes progress; return False for a full one that makes none."""
        while not self.has_space(lane):
            now = asyncio.get_running_loop().time()
            if lane.is_stalled or lane.breaker.is_open or lane.held_back(now) or lane.awaits_quota(now):
                return False
            progressed = lane.progressed
            self._freed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STALLED_SECONDS):
                    await self._freed.wait()
            # Time alone says nothing: this process may have been busy with other things.
            lane.is_stalled = lane.progressed == progressed
        return True
