"""Certificates made for one test run: an authority, a server and a client, all with ECDSA P-256 keys."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

_NAMES = "subjectAltName=IP:127.0.0.1,IP:127.0.0.2,IP:127.0.0.3,DNS:localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """PEM files; a keystore is a private key with its certificate in one file, as Kafka wants them."""

    ca: Path
    server_key: Path
    server_cert: Path
    server_keystore: Path
    client_key: Path
    client_cert: Path
    client_keystore: Path


def make_certificates(folder: Path, *, days: int = 2) -> Certificates:
    """A new authority in `folder` and what it has signed; the server's names are the loopback addresses."""
    folder.mkdir(parents=True, exist_ok=True)
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    _openssl(ca_key, ca, "headgate-test-authority", days, "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    files: dict[str, Path] = {}
    for who in ("server", "client"):
        key, cert, keystore = folder / f"{who}.key", folder / f"{who}.pem", folder / f"{who}-keystore.pem"
        signed = ("-CA", str(ca), "-CAkey", str(ca_key), "-addext", "basicConstraints=critical,CA:false")
        _openssl(key, cert, f"headgate-test-{who}", days, *signed, "-addext", _NAMES)
        keystore.write_text(key.read_text() + cert.read_text())
        files |= {f"{who}_key": key, f"{who}_cert": cert, f"{who}_keystore": keystore}
    return Certificates(ca=ca, **files)


def _openssl(key: Path, cert: Path, name: str, days: int, *more: str) -> None:
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", str(key))
    valid = ("-days", str(days), "-subj", f"/CN={name}")
    command = ["openssl", "req", "-x509", *new_key, "-out", str(cert), *valid, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"openssl could not make {cert}: {done.stderr}")
