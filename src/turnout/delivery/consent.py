"""Consent of endpoints: each that a subscription names by its URL is asked once before messages are posted to it.

Without that, a tenant could have turnout post to any server. Endpoints of the route are the operator's: they are not
asked.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from turnout.delivery.client import Client, Response, Target
from turnout.delivery.queue import AttemptLog, Consent, endpoint_key
from turnout.delivery.requests import Signer, merged_headers, message_id, signed
from turnout.routes.webhooks import ConsentKind
from turnout.subscriptions.credentials import HeaderNames

_log = logging.getLogger(__name__)

_ASK_SECONDS: Final = 15.0
_ANSWER_BYTES: Final = 16_384
_AGAIN_SECONDS: Final = 30.0
"""Seconds after a refusal in which the endpoint is not asked again."""

_MAX_KNOWN: Final = 100_000


class _Answer(msgspec.Struct):
    """Body of the answer to a challenge, as JSON."""

    response: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """Question to an endpoint.

    Attributes:
        destination: as the subscription has it: the URL.
        target: target of the requests.
        signer: signs a challenge.
        names: names of the headers of a challenge.
        secret: credentials of the endpoint.
        rate: requests of a second that settings allow; None for no limit.
    """

    destination: str
    target: Target
    signer: Signer
    names: HeaderNames
    secret: Mapping[str, str]
    rate: float | None


class Consents:
    """Consents of endpoints, each asked for once for a tenant, by one question at a time.

    Args:
        kind: how endpoints are asked.
        origin: name of the sender, for CloudEvents' validation.
        client: sends the questions.
        log: stores the answers.
    """

    def __init__(self, kind: ConsentKind, origin: str, client: Client, log: AttemptLog) -> None:
        self._kind = kind
        self._origin = origin
        self._client = client
        self._log = log
        self._asking: dict[str, asyncio.Task[Consent]] = {}

    def known(self, destination: str, tenant: str) -> Consent | None:
        """Return the answer of an endpoint; None if it has to be awaited."""
        known = self._log.consents.get(endpoint_key(destination, tenant))
        is_old = known is not None and not known.is_granted and time.time() > known.at + _AGAIN_SECONDS
        return None if is_old else known

    async def ask(self, question: Question, tenant: str) -> Consent:
        """Return the answer of an endpoint: the stored one, or that to a question now.

        Args:
            question: what to send.
            tenant: whose messages are meant; "" for those without a tenant.

        Raises:
            TurnoutError: the server that stores answers does not answer.
        """
        if (known := self.known(question.destination, tenant)) is not None:
            return known
        key = endpoint_key(question.destination, tenant)
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._answer(key, question, tenant))
            asking.add_done_callback(lambda ended: self._ended(key, ended))
        return await asyncio.shield(asking)

    def _ended(self, key: str, asking: asyncio.Task[Consent]) -> None:
        self._asking.pop(key, None)
        # The caller may have given up before it fails.
        if not asking.cancelled():
            asking.exception()

    async def _answer(self, key: str, question: Question, tenant: str) -> Consent:
        consent = await self._log.consent(key)
        if consent is None or not consent.is_granted or consent.kind != self._kind:
            problem, rate = await self._asked(question, tenant)
            consent = Consent(not problem, self._kind, time.time(), problem, rate)
            await self._log.keep_consent(key, consent)
            for_whom = f" for the tenant {tenant}" if tenant else ""
            if problem:
                _log.warning("no consent of %s%s: %s", question.destination, for_whom, problem)
            else:
                _log.info("%s has agreed to messages%s", question.destination, for_whom)
        if len(self._log.consents) >= _MAX_KNOWN:
            self._log.consents.clear()
        self._log.consents[key] = consent
        return consent

    async def _asked(self, question: Question, tenant: str) -> tuple[str, float | None]:
        """Ask an endpoint; return why it does not agree, "" if it does, and the requests of a second that it allows."""
        if self._kind == "cloudevents":
            headers = {"WebHook-Request-Origin": self._origin}
            if question.rate is not None:
                headers["WebHook-Request-Rate"] = f"{max(1, int(question.rate * 60))}"
            target = Target.of(question.target.url, method="OPTIONS", tls=question.target.tls)
            response = await self._sent(target, merged_headers(question.secret, headers), b"", tenant)
            return allowed(response, self._origin)
        text = secrets.token_urlsafe(32)
        body = msgspec.json.encode({"type": "turnout.challenge", "challenge": text})
        names = question.names
        headers = merged_headers({"Content-Type": "application/json"}, question.secret)
        headers[names.id] = message_id(text, "")
        own = signed(headers, question.signer, body, int(time.time()), f"{question.target.url}", names)
        response = await self._sent(question.target, own, body, tenant)
        return ("" if is_echoed(response, text) else _refusal("did not echo the challenge", response)), None

    async def _sent(self, target: Target, headers: Mapping[str, str], body: bytes, tenant: str) -> Response:
        return await self._client.post(
            target,
            headers,
            body,
            timeout=_ASK_SECONDS,
            max_response=_ANSWER_BYTES,
            owner=tenant,
            wants_content=True,
        )


def allowed(response: Response, origin: str) -> tuple[str, float | None]:
    """Return why an endpoint does not agree by CloudEvents' validation, "" if it does, and its rate of a second.

    >>> allowed(Response(200, headers={"webhook-allowed-origin": "*", "webhook-allowed-rate": "120"}), "a.example")
    ('', 2.0)
    >>> allowed(Response(405), "a.example")
    ('the endpoint did not allow the origin a.example: status 405', None)
    """
    who = response.headers.get("webhook-allowed-origin", "")
    names = [name.strip().lower() for name in who.split(",")]
    if not response.is_success or not {"*", origin.lower()} & set(names):
        return _refusal(f"did not allow the origin {origin}", response), None
    rate = response.headers.get("webhook-allowed-rate", "*")
    if rate == "*":
        return "", None
    if not (rate.isascii() and rate.isdecimal() and 0 < len(rate) < 10 and int(rate)):
        return f"the endpoint allows no rate: found {rate!a:.40}, expected requests of a minute, or *", None
    return "", int(rate) / 60


def is_echoed(response: Response, text: str) -> bool:
    """Return True if a response repeats a challenge: as its whole body, or as ``response`` of a JSON object.

    What repeats the request itself has not understood it, and does not count.
    """
    if not response.is_success:
        return False
    body = response.body.strip()
    try:
        found = msgspec.json.decode(body, type=_Answer).response
    except (ValueError, RecursionError):
        found = ""
    return hmac.compare_digest(body, text.encode()) or hmac.compare_digest(found.encode(), text.encode())


def _refusal(what: str, response: Response) -> str:
    reason = response.error if response.status is None else f"status {response.status}"
    return f"the endpoint {what}: {reason}"
