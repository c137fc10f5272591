"""MongoDB's driver: its errors as turnout's, URLs that it cannot read, and TLS."""

from __future__ import annotations

import contextlib
import subprocess
import time

import pytest
from pymongo import errors
from tests.contracts.store import subscription
from tests.ferretdb import FerretDb, NotAvailable

from turnout.errors import ConfigError, StoreUnavailableError, SubscriptionError
from turnout.subscriptions import open_store
from turnout.subscriptions.stores._mongo_driver import error_of

pytestmark = pytest.mark.mongo


def test_nobody_there():
    """A server that cannot be reached is an error that a retry may cure, soon."""
    begun = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="MongoDB is away"):
        open_store("mongodb://127.0.0.1:1/db?serverSelectionTimeoutMS=200")
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("url", ["mongodb://", "mongodb://h:port/", "mongodb://h/?tls=perhaps", "mongodb://a b@h/?x"])
def test_bad_urls(url):
    """A URL that the driver cannot read is a wrong request."""
    with pytest.raises(ConfigError, match="store"):
        open_store(url)


def test_every_error_of_the_driver_is_translated():
    """Every exception of the driver becomes an error of turnout's."""

    def below(kind):
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    for kind in below(errors.PyMongoError):
        failure = kind.__new__(kind)
        Exception.__init__(failure, "the words")
        failure._message = "the words"
        error = error_of(failure)

        assert isinstance(error, SubscriptionError), kind
        retry = issubclass(kind, (errors.ConnectionFailure, errors.ExecutionTimeout, errors.WTimeoutError))
        assert not retry or isinstance(error, StoreUnavailableError), kind


def test_tls(tmp_path):
    """A server with a certificate is spoken to over TLS, as the URL's options say."""
    arguments = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem"]
    arguments += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *arguments], cwd=tmp_path, check=True, capture_output=True)
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(FerretDb(certificate=tmp_path / "cert.pem", key=tmp_path / "key.pem"))
        except NotAvailable as reason:
            pytest.skip(str(reason))
        trusting = f"mongodb://{server.address}/db?tls=true&tlsCAFile={tmp_path}/cert.pem"
        with open_store(trusting) as store:
            assert store.read(store.create(subscription(id="x"))).id == "x"
        with pytest.raises(StoreUnavailableError):
            open_store(f"mongodb://{server.address}/db?tls=true&serverSelectionTimeoutMS=500")
