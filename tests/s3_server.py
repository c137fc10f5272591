"""A stand-in of S3 on loopback: buckets in memory, as much of the protocol as Hadoop's client speaks for checkpoints.

It is consistent, as Amazon's is: whoever asks after a write sees it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest
from tools.maven import s3_jars

from turnout.errors import TurnoutError

_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
_PAGE = 1000


class S3Server(ThreadingHTTPServer):
    """Objects of all buckets by ``bucket/key``.

    Attributes:
        delay: is called with method and path of each request before it is carried out.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.delay: Callable[[str, str], None] = lambda _method, _path: None
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a stand-in in a thread."""
    with S3Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Say nothing."""

    def _begin(self) -> None:
        parts = urlsplit(self.path)
        self.key = unquote(parts.path).strip("/") if parts.path.count("/") < 2 else unquote(parts.path)[1:]
        self.query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        self.content = self._read()
        self.server.delay(self.command, self.path)

    def _read(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        else:
            body = b"".join(iter(self._chunk, b""))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return body
        # The client signs or checks the parts of a body one by one: length in hexadecimal, what is said of it, bytes.
        whole, rest = b"", body
        while True:
            head, _, rest = rest.partition(b"\r\n")
            length = int(head.partition(b";")[0], 16)
            if not length:
                return whole
            whole, rest = whole + rest[:length], rest[length + 2 :]

    def _chunk(self) -> bytes:
        length = int(self.rfile.readline().partition(b";")[0], 16)
        chunk = self.rfile.read(length)
        self.rfile.readline()
        return chunk

    def _answer(self, status: int, content: bytes = b"", headers: Mapping[str, str] = MappingProxyType({})) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _answer_xml(self, text: str, status: int = 200) -> None:
        self._answer(status, (_XML + text).encode(), {"Content-Type": "application/xml"})

    def _missing(self) -> None:
        self._answer_xml("<Error><Code>NoSuchKey</Code><Message>there is no such key</Message></Error>", 404)

    @staticmethod
    def _facts(content: bytes) -> dict[str, str]:
        etag = f'"{hashlib.md5(content).hexdigest()}"'
        return {"ETag": etag, "Last-Modified": formatdate(usegmt=True)}

    def do_HEAD(self) -> None:
        self._begin()
        content = b"" if "/" not in self.key else self.server.objects.get(self.key)
        if content is None:
            self._answer(404)
            return
        self._answer(200, content, self._facts(content))

    def do_GET(self) -> None:
        self._begin()
        if "/" not in self.key:
            self._list()
            return
        content = self.server.objects.get(self.key)
        if content is None:
            self._missing()
            return
        first, _, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
        if not first:
            self._answer(200, content, self._facts(content))
            return
        part = content[int(first) : int(last) + 1 if last else None]
        span = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
        self._answer(206, part, {"Content-Range": span, **self._facts(content)})

    def _list(self) -> None:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        after = self.query.get("continuation-token") or self.query.get("start-after", "")
        with self.server.lock:
            found = sorted(
                (name.partition("/")[2], content)
                for name, content in self.server.objects.items()
                if name.startswith(f"{self.key}/{prefix}")
            )
        entries: dict[str, str] = {}
        for name, content in found:
            rest, cut, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
            if cut:
                folder = prefix + rest + cut
                entries[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            else:
                etag, moment = escape(self._facts(content)["ETag"]), "2026-01-01T00:00:00.000Z"
                entries[name] = (
                    f"<Contents><Key>{escape(name)}</Key><LastModified>{moment}</LastModified><ETag>{etag}</ETag>"
                    f"<Size>{len(content)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
                )
        names = [name for name in sorted(entries) if name > after]
        page = names[: int(self.query.get("max-keys") or _PAGE)]
        more = len(page) < len(names)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more and page else ""
        self._answer_xml(
            f"<ListBucketResult><Name>{self.key}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(entries[name] for name in page)}"
            "</ListBucketResult>"
        )

    def do_PUT(self) -> None:
        self._begin()
        copied = self.headers.get("x-amz-copy-source")
        content = self.content if copied is None else self.server.objects.get(unquote(copied).lstrip("/"))
        if content is None:
            self._missing()
            return
        with self.server.lock:
            is_there = self.key in self.server.objects
            if not (is_there and self.headers.get("If-None-Match") == "*"):
                self.server.objects[self.key] = content
                is_there = False
        facts = self._facts(content)
        if is_there:
            self._answer_xml("<Error><Code>PreconditionFailed</Code><Message>it exists</Message></Error>", 412)
        elif copied is None:
            self._answer(200, headers=facts)
        else:
            moment = "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            self._answer_xml(f"<CopyObjectResult>{moment}<ETag>{escape(facts['ETag'])}</ETag></CopyObjectResult>")

    def do_DELETE(self) -> None:
        self._begin()
        with self.server.lock:
            self.server.objects.pop(self.key, None)
        self._answer(204)

    def do_POST(self) -> None:
        """Delete many objects."""
        self._begin()
        assert "delete" in self.query, f"the stand-in does not know {self.path}"
        keys = [
            element.text or "" for element in ElementTree.fromstring(self.content).iter() if element.tag.endswith("Key")
        ]
        with self.server.lock:
            for key in keys:
                self.server.objects.pop(f"{self.key}/{key}", None)
        self._answer_xml("<DeleteResult></DeleteResult>")


def jars_of_s3() -> str:
    """Return the jars of Hadoop's client, as ``spark.jars`` has them; the test is skipped where they cannot be had."""
    try:
        return ",".join(map(str, s3_jars()))
    except TurnoutError as missing:
        pytest.skip(f"Hadoop's client of S3 is not to be had: {missing}")
