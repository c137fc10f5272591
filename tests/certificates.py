"""Certificates for the tests of TLS, made by the openssl program."""

from __future__ import annotations

import subprocess
from pathlib import Path

_NEW = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make_certificates(folder: Path) -> Path:
    """Two authorities, ``ca`` and ``other``; a ``server`` and a ``client`` of the first, a ``stranger`` of the other.

    Each has a .pem and a .key. All are valid for localhost and 127.0.0.1, for a month.
    """

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    for authority in ("ca", "other"):
        openssl(
            *_NEW,
            "-x509",
            "-keyout",
            f"{authority}.key",
            "-out",
            f"{authority}.pem",
            "-subj",
            f"/CN={authority}",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
        )
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name, authority in (("server", "ca"), ("client", "ca"), ("stranger", "other")):
        openssl(*_NEW, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signer = ("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial")
        openssl("x509", "-req", "-in", f"{name}.csr", *signer, "-extfile", "names", "-out", f"{name}.pem")
    return folder
