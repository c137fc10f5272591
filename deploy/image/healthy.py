"""Whether a container is well: exit code 0, or 1 with the reason.

``healthy.py`` alone looks for the JVM that a route and ``turnout serve`` run on, or asks the subscriptions service
where that is what runs; ``healthy.py http://127.0.0.1:8090/live`` asks the server, and ``healthy.py
grpc://127.0.0.1:8080`` the service. A server that asks for clients' certificates is shown that of API_TLS_CERT and
API_TLS_KEY.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

SECONDS = 4
"""For an answer; less than a container engine gives a health check."""


SERVICE = b"\0subscriptions\0serve\0"


def runs(file: str, text: bytes) -> bool:
    """Whether a process has a text in a file of /proc; one that has just ended has none."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if text in (process / file).read_bytes():
                return True
        except OSError:
            continue
    return False


def unverified() -> ssl.SSLContext:
    """TLS with whoever answers."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if own := os.environ.get("API_TLS_CERT"):
        context.load_cert_chain(own, os.environ.get("API_TLS_KEY"))
    return context


def problem_of_http(url: str) -> str | None:
    """What is wrong with an HTTP server; None if it answers that it is well."""
    # It is asked on the loopback address, for which its certificate is not.
    context = unverified() if url.startswith("https:") else None
    try:
        with urlopen(url, timeout=SECONDS, context=context):  # noqa: S310 - http and https alone come here
            return None
    except OSError as failure:
        return f"{url}: {failure}"


def problem_of_service() -> str | None:
    """What is wrong with the subscriptions service of this container; with TLS it has to listen, and is not asked."""
    host, port = os.environ.get("API_HOST", "").strip("[]"), os.environ.get("API_PORT") or "8080"
    host = "127.0.0.1" if host in ("", "0.0.0.0", "::") else host  # noqa: S104 - the address that it listens on
    if not os.environ.get("API_TLS_CERT"):
        return problem_of_grpc(f"{host}:{port}")
    try:
        socket.create_connection((host, int(port)), SECONDS).close()
    except OSError as failure:
        return f"{host}:{port}: {failure}"
    return None


def problem_of_grpc(address: str) -> str | None:
    """What is wrong with a gRPC server by its health service; None if it is serving."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    try:
        with grpc.insecure_channel(address) as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=SECONDS)
    except grpc.RpcError as failure:
        return f"{address}: {failure.code().name}"
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return None if status == "SERVING" else f"{address}: {status}"


def problem(arguments: list[str]) -> str | None:
    """What is wrong with what the arguments name, None if nothing is."""
    if not arguments:
        if runs("comm", b"java\n"):
            return None
        return problem_of_service() if runs("cmdline", SERVICE) else "there is no JVM"
    address = urlsplit(arguments[0])
    if address.scheme in ("http", "https"):
        return problem_of_http(arguments[0])
    if address.scheme == "grpc":
        return problem_of_grpc(address.netloc)
    return f"expected an http, https or grpc address, found {arguments[0]!r}"


sys.exit(problem(sys.argv[1:]))
