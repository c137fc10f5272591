"""Every thread and task of the package is started where its end is noticed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import turnout

SOURCE = Path(turnout.__file__).parent
SUPERVISED = "base/background.py"

STARTS = frozenset(
    (
        "Thread", "Timer", "Process", "ThreadPoolExecutor", "ProcessPoolExecutor", "BoundedPool", "start_new_thread",
        "create_task", "ensure_future", "run_coroutine_threadsafe", "run_in_executor", "to_thread", "submit",
        "TaskGroup", "start_soon", "call_soon", "call_soon_threadsafe", "call_later", "call_at",
    )
)  # fmt: skip
"""Calls that start a thread or a task, or leave work to a loop."""

AWAITED = "its starter awaits the result, and raises the exception"
TIMER = "the loop logs an exception of a short callback, and the next event starts it again"
TASKS = "the pool of calls whose results are awaited"

ALLOWED = {
    "delivery/client.py:Client.__aenter__": AWAITED,
    "delivery/client.py:Client.send": TIMER,
    "delivery/client.py:Connection._set_deadline": TIMER,
    "delivery/dispatcher.py:Dispatcher._failed": TIMER,
    "delivery/dispatcher.py:Dispatcher._post": TIMER,
    "delivery/dispatcher.py:Dispatcher._pump": TIMER,
    "delivery/dispatcher.py:Dispatcher._send_request": TIMER,
    "delivery/dispatcher.py:Dispatcher.run": "keep_running, until they are cancelled",
    "delivery/kafka_queue.py:KafkaQueue.__init__": TASKS,
    "delivery/kafka_queue.py:KafkaQueue._run": AWAITED,
    "server/rest/dependencies.py:_check_body": AWAITED,
    "server/security.py:Bodies.forward": AWAITED,
    "delivery/kafka_queue.py:KafkaWriter._flush": AWAITED,
    "delivery/kafka_queue.py:KafkaWriter.close": AWAITED,
    "delivery/kafka_queue.py:KafkaWriter.store": "every exception goes to the futures of its records",
    "delivery/guard.py:LookupResolver.resolve.look_up": "hands the result to the waiting coroutine",
    "delivery/scheduled.py:DelayLeader._close": AWAITED,
    "delivery/scheduled.py:DelayLeader._lead": "looked at between messages, and awaited at the end",
    "delivery/scheduled.py:DelayLeader._open": AWAITED,
    "delivery/scheduled.py:DelayLeader._publish": "what cannot be deleted is in the heap again; awaited at the end",
    "delivery/scheduled.py:DelayLeader._store": AWAITED,
    "delivery/scheduled.py:opened_leader": AWAITED,
    "delivery/dispatcher.py:deliver": AWAITED,
    "delivery/dispatcher.py:opened_queue": AWAITED,
    "delivery/settings.py:Lanes.open": AWAITED,
    "delivery/streams.py:DeliveryStreams._renew": "every exception goes to the reader of the messages",
    "delivery/streams.py:DeliveryStreams.messages": "keep_running, until it is cancelled",
    "delivery/settings.py:Lanes.refresh": AWAITED,
    "demo/kafka_year.py:KafkaDemo.subscribe": TASKS,
    "demo/year.py:LiveDemo.run": AWAITED,
    "nats/jetstream/_client.py:Watchdog._check": TIMER,
    "nats/jetstream/_client.py:Watchdog._judge": TIMER,
    "nats/jetstream/_client.py:Watchdog.start": TIMER,
    "nats/jetstream/_client.py:within": AWAITED,
    "nats/jetstream/connection.py:Api.spawn": "awaited by settle, or by its caller; else the loop logs it",
    "nats/jetstream/connection.py:NatsConnection.report": "its exception is logged when it ends",
    "nats/jetstream/consumer.py:Consumer.consume": "every exception goes to the error callback",
    "nats/jetstream/objects.py:_pieces": AWAITED,
    "nats/jetstream/objects.py:_sources": AWAITED,
    "nats/jetstream/ordered.py:OrderedSubscription._begin_again": "every exception is reported, and ends it",
    "nats/jetstream/publish.py:AsyncPublisher._sweep": TIMER,
    "nats/jetstream/publish.py:AsyncPublisher.publish_async": TIMER,
    "nats/jetstream/pull.py:PullMessages._refill_in": TIMER,
    "nats/jetstream/subscription.py:PushSubscription.bind": "every exception of the callback is reported",
    "delivery/access.py:TokenSource.token": AWAITED,
    "delivery/consent.py:Consents.ask": AWAITED,
    "delivery/dispatcher.py:Dispatcher._make": TIMER,
    "delivery/settings.py:Endpoints._access": AWAITED,
    "rpc/feeds.py:_Acknowledging.__init__": "its exception is raised by the thread of the call",
    "rpc/server.py:RpcServer.__init__": "the pool of gRPC, which answers a call with its exception",
    "server/routes/events.py:Events.listen": AWAITED,
    "server/routes/events.py:_Listener._offer": TIMER,
    "server/serving.py:FeedCall._waited": AWAITED,
    "server/inputs.py:Intake._answer": AWAITED,
    "server/inputs.py:Intake._connection": AWAITED,
    "server/inputs.py:Intake.close": AWAITED,
    "server/listener.py:HttpServer._hand_over": "one connection; the loop logs an exception that is no OSError",
    "server/listener.py:HttpServer._refuse": TIMER,
    "server/listener.py:HttpServer._serve": "the end of one of them ends the server, which begins again",
    "server/rest/dependencies.py:Parts": TASKS,
    "server/rest/feeds.py:_converse": AWAITED,
    "server/standby.py:StandbyApp._forward_socket": "ends with its WebSocket, which is closed then",
    "server/rest/dependencies.py:in_pool": AWAITED,
    "server/rest/monitoring.py:_stored": AWAITED,
    "server/rest/records.py:_stream.put": TIMER,
    "server/security.py:Gate._bearer": AWAITED,
    "subscriptions/index/index_writer.py:BackgroundTask.__init__": "its exception is raised by its reader",
    "subscriptions/store.py:BoundedPool": TASKS,
    "subscriptions/store.py:BoundedPool.submit": AWAITED,
    "subscriptions/store.py:StoreThreads": TASKS,
    "subscriptions/store_url.py:log_wait": "logs one line",
}
"""Starts that are not supervised, with the reason why none of them can end without a word."""


def starts() -> Iterator[tuple[str, str]]:
    """Yield ``file:function`` and the called name of every start outside the supervised ones."""
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        if file != SUPERVISED:
            yield from _starts_of(file, ast.parse(path.read_text(encoding="utf-8")))


def _starts_of(file: str, tree: ast.AST, scope: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for base in getattr(node, "bases", ()):
                if _name(base) in STARTS:
                    yield _place(file, (*scope, node.name)), _name(base)
            yield from _starts_of(file, node, (*scope, node.name))
            continue
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name in STARTS and alias.asname is not None:
                    yield _place(file, scope), f"import {alias.name} as {alias.asname}"
        if isinstance(node, ast.Call) and (called := _name(node.func)) in STARTS:
            yield _place(file, scope), called
        yield from _starts_of(file, node, scope)


def _place(file: str, scope: tuple[str, ...]) -> str:
    return f"{file}:{'.'.join(scope)}" if scope else file


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_every_start_is_supervised() -> None:
    """A thread, task or timer is started by `turnout.base.background`, or is known with the reason why it need not be.

    A thread that ends by an exception says so to nobody, and what it did is not done from then on. Start it by
    `Background`, `run_once`, `keep_running` or `Tasks`, or add it to `ALLOWED` with a reason.
    """
    found = {place for place, _ in starts()}

    assert found - ALLOWED.keys() == set()
    assert ALLOWED.keys() - found == set()


def test_the_walk_sees_each_kind() -> None:
    """Calls by any name, subclasses, and starts in nested functions are found."""
    source = """
import threading
from threading import Thread as _T, Thread
class Worker(threading.Thread): ...
class Other(Thread):
    def start_it(self):
        def inner():
            asyncio.get_running_loop().create_task(x())
        threading.Timer(1, inner).start()
async def main():
    async with asyncio.TaskGroup() as group:
        group.create_task(x())
    pool.submit(f)
"""
    assert list(_starts_of("m.py", ast.parse(source))) == [
        ("m.py", "import Thread as _T"),
        ("m.py:Worker", "Thread"),
        ("m.py:Other", "Thread"),
        ("m.py:Other.start_it.inner", "create_task"),
        ("m.py:Other.start_it", "Timer"),
        ("m.py:main", "TaskGroup"),
        ("m.py:main", "create_task"),
        ("m.py:main", "submit"),
    ]
