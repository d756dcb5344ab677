"""Certificates for one campaign: an authority and a server certificate for this machine, made by openssl.

ECDSA on P-256, because its handshakes cost half of RSA's and that is what an operator would choose today. Nothing
of it outlives the campaign's folder.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.processes import BenchError

_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """PEM files: who is trusted, the server's certificate and key, and both in one as brokers and haproxy want them."""

    authority: Path
    certificate: Path
    key: Path
    both: Path


def make(folder: Path) -> Certificates:
    folder.mkdir(parents=True, exist_ok=True)
    authority, certificate, key = folder / "ca.pem", folder / "server.pem", folder / "server.key"
    authority_key, request, extensions = folder / "ca.key", folder / "server.csr", folder / "extensions"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _openssl("req", "-x509", *curve, "-subj", "/CN=bench-ca", "-days", "2", "-keyout", authority_key, "-out", authority)
    _openssl("req", *curve, "-subj", "/CN=localhost", "-keyout", key, "-out", request)
    extensions.write_text(_NAMES + "\n")
    _openssl(
        *("x509", "-req", "-in", request, "-CA", authority, "-CAkey", authority_key, "-CAcreateserial"),
        *("-days", "2", "-extfile", extensions, "-out", certificate),
    )
    both = folder / "both.pem"
    both.write_text(key.read_text() + certificate.read_text() + authority.read_text())
    return Certificates(authority=authority, certificate=certificate, key=key, both=both)


def _openssl(*arguments: str | Path) -> None:
    try:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True, timeout=30)
    except FileNotFoundError:
        raise BenchError("openssl is not installed, and TLS needs it for certificates") from None
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"openssl {arguments[0]} failed: {error}: {error.stderr!r}") from None
