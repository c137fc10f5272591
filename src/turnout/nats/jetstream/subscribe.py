"""The subscribe workflow of ADR-15: check, look up, check again, subscribe, create."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from turnout.errors import ConfigError, Mistake
from turnout.nats.jetstream.config import AckPolicy, ConsumerConfig, ConsumerInfo, decode, encode
from turnout.nats.jetstream.connection import Api, name_mistake
from turnout.nats.jetstream.consumer import PullSubscription
from turnout.nats.jetstream.errors import (
    ConfigDriftError,
    ConsumerBoundError,
    ConsumerExistsError,
    ConsumerNotFoundError,
    FilterMismatchError,
    NoDeliverGroupError,
    NoMatchingStreamError,
    PullConsumerError,
    PushConsumerError,
    QueueFlowControlError,
    QueueMismatchError,
    QueueRequiredError,
    StreamError,
)
from turnout.nats.jetstream.subscription import Delivery, PushSubscription


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionRequest:
    """Arguments of a subscription.

    Attributes:
        subject: subject to receive; it finds the stream, and is the filter of a consumer that is made.
        stream: the stream, where it is known.
        consumer: an existing consumer to bind to.
        durable: a durable consumer to use, or to make.
        queue: the queue group to join; it is also the durable where neither that nor a consumer is given.
        config: further configuration; fields that are not set are not compared with an existing consumer.
        pull: whether it is a pull consumer.
        delete_consumer: whether a consumer that this call made is deleted, by unsubscribing and by closing. If not
            given, unsubscribing deletes it but for queue subscriptions: the other members would lose their consumer
            (the caveat at the end of ADR-15). Closing deletes it if it has no name.
    """

    subject: str = ""
    stream: str = ""
    consumer: str = ""
    durable: str = ""
    queue: str = ""
    config: ConsumerConfig = field(default_factory=ConsumerConfig)
    pull: bool = False
    delete_consumer: bool | None = None

    @property
    def durable_name(self) -> str:
        """The durable to use or make, empty for an ephemeral consumer."""
        return self.durable or self.config.durable_name or ("" if self.consumer else self.queue)

    @property
    def name(self) -> str:
        """Name of the consumer to look up, empty if none is given."""
        return self.consumer or self.durable_name or self.config.name or ""

    @property
    def owned(self) -> bool:
        """True if unsubscribing deletes a consumer that was created for this subscription."""
        return not self.queue if self.delete_consumer is None else self.delete_consumer

    @property
    def ephemeral(self) -> bool:
        """True if closing, too, deletes a consumer created for this subscription: without a name it is lost."""
        return not self.name if self.delete_consumer is None else self.delete_consumer


_Rule = Callable[[SubscriptionRequest], "Mistake | None"]


def _subject_required(request: SubscriptionRequest) -> Mistake | None:
    if request.subject or request.stream:
        return None
    return Mistake("subject", "a subject is required where no stream is given: it finds the stream")


def _queue_without_statuses(request: SubscriptionRequest) -> Mistake | None:
    settings = [
        name
        for name, value in (("heartbeat", request.config.idle_heartbeat), ("flow control", request.config.flow_control))
        if value
    ]
    if not request.queue or not settings:
        return None
    listed = " and ".join(settings)
    return Mistake("queue", f"a queue subscription cannot have {listed}: they would go to a random member")


def _pull_acks(request: SubscriptionRequest) -> Mistake | None:
    policy = request.config.ack_policy
    if not request.pull or policy in (None, AckPolicy.EXPLICIT):
        return None
    return Mistake("config.ack_policy", f"the ack policy {str(policy)!r} is not allowed with a pull subscription")


def _pull_is_not_push(request: SubscriptionRequest) -> Mistake | None:
    if not request.pull:
        return None
    if request.config.deliver_subject:
        return Mistake("config.deliver_subject", "this is a pull subscription with a push configuration")
    if request.queue or request.config.deliver_group:
        return Mistake("queue", "this is a pull subscription: its subscribers share a consumer without a queue group")
    return None


def _one_filter(request: SubscriptionRequest) -> Mistake | None:
    config = request.config
    if config.filter_subject is not None and request.subject and config.filter_subject != request.subject:
        return Mistake(
            "config.filter_subject", f"{config.filter_subject!r} is not the subject {request.subject!r}; give one"
        )
    if config.filter_subjects and (config.filter_subject or request.subject):
        return Mistake("config.filter_subjects", "give one subject or several filters, not both")
    return None


def _one_name(request: SubscriptionRequest) -> Mistake | None:
    if request.consumer and request.durable and request.consumer != request.durable:
        return Mistake("durable", f"{request.durable!r} is not the consumer {request.consumer!r} to bind to; give one")
    if request.consumer and not request.stream and not request.subject:
        return Mistake("stream", "a consumer to bind to needs its stream, or a subject that finds it")
    return None


def _one_group(request: SubscriptionRequest) -> Mistake | None:
    group = request.config.deliver_group
    if group and not request.pull and group != request.queue:
        return Mistake("config.deliver_group", f"{group!r} is not the queue {request.queue!r}")
    return None


def _names(request: SubscriptionRequest) -> list[Mistake]:
    names = (
        ("stream", request.stream),
        ("consumer", request.consumer),
        ("durable", request.durable),
        ("queue", request.queue),
        ("config.name", request.config.name),
        ("config.durable_name", request.config.durable_name),
    )
    return [mistake for path, name in names if name and (mistake := name_mistake(path, name))]


_RULES: tuple[_Rule, ...] = (
    _subject_required,
    _queue_without_statuses,
    _pull_acks,
    _pull_is_not_push,
    _one_filter,
    _one_name,
    _one_group,
)


def check_request(request: SubscriptionRequest) -> None:
    """Check what needs no server (ADR-15, "Configuration").

    Raises:
        ConfigError: all mistakes; nothing has been sent.
    """
    mistakes = [mistake for rule in _RULES if (mistake := rule(request))] + _names(request)
    if mistakes:
        raise ConfigError(mistakes, what="bad subscription")


def check_existing(info: ConsumerInfo, request: SubscriptionRequest) -> None:
    """Check an existing consumer against the requested configuration (ADR-15, "Push Consumer active information").

    Raises:
        ConsumerMismatchError: the first difference; the subclass tells which.
    """
    config, label = info.config, f"the consumer {info.name!r} of the stream {info.stream_name!r}"
    if request.pull and config.is_push:
        raise PushConsumerError(f"{label} is a push consumer: it cannot be pulled from")
    if not request.pull and not config.is_push:
        raise PullConsumerError(f"{label} is a pull consumer: a pull subscription is required")
    if not request.pull:
        _check_queue(info, request, label)
    filters = config.filter_subjects or ((config.filter_subject,) if config.filter_subject else ())
    if request.subject and filters and tuple(filters) != (request.subject,):
        raise FilterMismatchError(f"{label} has the filter {', '.join(filters)!r} and not {request.subject!r}")
    differences = request.config.differences(config)
    if differences:
        raise ConfigDriftError(info.name, differences)


def _check_queue(info: ConsumerInfo, request: SubscriptionRequest, label: str) -> None:
    config = info.config
    if not request.queue:
        if config.deliver_group:
            raise QueueRequiredError(
                f"{label} was made for the queue group {config.deliver_group!r}: a plain subscription cannot use it"
            )
        if info.push_bound:
            raise ConsumerBoundError(f"{label} is bound to a subscription already: this would be a duplicate")
        return
    if not config.deliver_group:
        raise NoDeliverGroupError(f"{label} was made without a deliver group: no queue subscription can use it")
    if config.deliver_group != request.queue:
        raise QueueMismatchError(
            f"{label} was made for the queue group {config.deliver_group!r}, not {request.queue!r}"
        )
    if config.flow_control or config.idle_heartbeat:
        raise QueueFlowControlError(f"{label} has heartbeats or flow control, which a queue group cannot have")


async def stream_of(api: Api, subject: str) -> str:
    """The one stream that takes *subject*.

    Raises:
        NoMatchingStreamError: none does, or several.
    """
    names = (await api.call("STREAM.NAMES", {"subject": subject})).get("streams") or []
    if len(names) == 1:
        return str(names[0])
    takers = f"{len(names)} streams do: {', '.join(names)}" if names else "none does"
    raise NoMatchingStreamError(f"no matching stream: one stream must take {subject!r}, and {takers}")


async def create_consumer(api: Api, stream: str, config: ConsumerConfig, *, action: str = "create") -> ConsumerInfo:
    """Make a consumer, or change one.

    The subject carries the filter, so that permissions can be given by filter; the action ``create`` makes a server
    say when the name is taken, where it would silently change the consumer otherwise.

    Raises:
        ConsumerExistsError: *action* is ``create`` and there is another one of that name.
    """
    name = config.name or config.durable_name or ""
    subject = f"CONSUMER.CREATE.{stream}.{name}"
    if config.filter_subject and config.filter_subject != ">":
        subject += f".{config.filter_subject}"
    body: dict[str, object] = {"stream_name": stream, "config": encode(config)}
    if action:
        body["action"] = action
    return decode(ConsumerInfo, await api.call(subject, body))


async def create_guarded(api: Api, stream: str, config: ConsumerConfig) -> ConsumerInfo:
    """Call `create_consumer`, and delete the consumer again if the caller is cancelled meanwhile."""
    work = api.spawn(create_consumer(api, stream, config))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        api.spawn(_undo(api, work))
        raise


async def _undo(api: Api, work: asyncio.Task[ConsumerInfo]) -> None:
    await asyncio.wait([work])
    if not work.cancelled() and work.exception() is None:
        info = work.result()
        await api.forget_consumer(info.stream_name, info.name)


def _full_config(api: Api, request: SubscriptionRequest, deliver_subject: str | None) -> ConsumerConfig:
    """The configuration of a consumer to make (ADR-15, "Creating the JS Consumer")."""
    config = request.config
    return replace(
        config,
        name=request.name or api.connection.unique(),
        durable_name=request.durable_name or None,
        deliver_subject=deliver_subject,
        deliver_group=request.queue or None,
        filter_subject=config.filter_subject or (request.subject or None),
        ack_policy=config.ack_policy or AckPolicy.EXPLICIT,
    )


async def _look_up(api: Api, stream: str, request: SubscriptionRequest) -> ConsumerInfo | None:
    """Request the named consumer; None if it must be created, or a pull subscription continues without it."""
    if not request.name:
        return None
    try:
        return await api.consumer_info(stream, request.name)
    except ConsumerNotFoundError:
        if request.consumer and not request.pull:
            raise
        return None
    except StreamError:
        # ADR-15: a pull subscription proceeds without the lookup; it may not be permitted to make it.
        if request.consumer and request.pull:
            return None
        raise


async def establish_push(api: Api, request: SubscriptionRequest, delivery: Delivery) -> PushSubscription:
    """Subscribe, from the checks to the consumer.

    Raises:
        ConfigError: it cannot be so; nothing was sent.
        ConsumerMismatchError: the consumer that exists is another one.
        NoMatchingStreamError: the subject finds no stream, or several.
    """
    check_request(request)
    acks_nothing = request.config.ack_policy == AckPolicy.NONE
    subscription = PushSubscription(api, delivery, queue=request.queue, acks_nothing=acks_nothing)
    try:
        stream = request.stream or await stream_of(api, request.subject)
        info = await _look_up(api, stream, request)
        if info is not None:
            await _bind(subscription, info, request)
            return subscription
        inbox = request.config.deliver_subject or api.connection.new_inbox()
        # First the interest, then the consumer: so the server knows whether a durable is in use.
        await subscription.listen(inbox)
        try:
            info = await create_guarded(api, stream, _full_config(api, request, inbox))
        except ConsumerExistsError:
            # Another client created it between the lookup and the creation: do not delete it.
            subscription.drop_interest()
            name = request.name
            if not name:
                raise
            await _bind(subscription, await api.consumer_info(stream, name), request)
            return subscription
        subscription.bind(info, owned=request.owned, ephemeral=request.ephemeral)
    except BaseException:
        subscription.end()
        raise
    return subscription


async def _bind(subscription: PushSubscription, info: ConsumerInfo, request: SubscriptionRequest) -> None:
    check_existing(info, request)
    subscription.bind_position(info)
    await subscription.listen(info.config.deliver_subject or "")
    subscription.bind(info, owned=False)


async def establish_pull(api: Api, request: SubscriptionRequest) -> PullSubscription:
    """Find or make the consumer of a pull subscription.

    Raises:
        ConfigError: it cannot be so; nothing was sent.
        ConsumerMismatchError: the consumer that exists is another one.
        NoMatchingStreamError: the subject finds no stream, or several.
    """
    check_request(request)
    stream = request.stream or await stream_of(api, request.subject)
    info = await _look_up(api, stream, request)
    if info is not None:
        check_existing(info, request)
        return await PullSubscription(api, stream, info.name, info).join()
    if request.consumer:
        return await PullSubscription(api, stream, request.consumer).join()
    try:
        info = await create_guarded(api, stream, _full_config(api, request, None))
    except ConsumerExistsError:
        info = await api.consumer_info(stream, request.name)
        check_existing(info, request)
        return await PullSubscription(api, stream, info.name, info).join()
    made = PullSubscription(api, stream, info.name, info, owned=request.owned, ephemeral=request.ephemeral)
    try:
        return await made.join() if request.name else made
    except BaseException:
        made.end()
        api.spawn(api.forget_consumer(stream, info.name))
        raise
