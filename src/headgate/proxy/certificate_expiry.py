"""When a certificate expires, read from its bytes.

Python's ssl module shows only the certificates of peers, and a library for X.509 is 8 MB of every worker. The walk goes
to one field of RFC 5280, section 4.1: certificate, tbsCertificate, validity, notAfter.
"""

import re
import ssl
from datetime import UTC, datetime

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x30, 0x17, 0x18, 0xA0


def expiry_of(pem: str) -> float:
    """Epoch seconds of the first certificate's end: it is the gateway's, the others are its issuers."""
    found = _PEM.search(pem)
    if found is None:
        raise ValueError("there is no certificate in PEM format")
    try:
        certificate = _content(ssl.PEM_cert_to_DER_cert(found[0]), _SEQUENCE)
        fields = _elements(_content(certificate, _SEQUENCE))
        # The version is left out of a certificate of version 1; serial number, signature and issuer come before it.
        validity = fields[4 if fields[0][0] == _VERSION else 3]
        _, (kind, text) = _elements(validity[1])
        form = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}[kind]
        return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp()
    except (IndexError, KeyError, ValueError):
        raise ValueError("the certificate has no readable end of validity") from None


def _content(data: bytes, tag: int) -> bytes:
    """The content of the first element."""
    first = _elements(data)[0]
    if first[0] != tag:
        raise ValueError(f"tag {first[0]} in place of {tag}")
    return first[1]


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """The elements of a DER sequence, each with its tag."""
    elements = []
    at = 0
    while at < len(data):
        tag, size = data[at], data[at + 1]
        at += 2
        if size >= 0x80:  # the number of bytes of the size
            count = size - 0x80
            size = int.from_bytes(data[at : at + count])
            at += count
        if at + size > len(data):
            raise ValueError("an element is longer than the sequence")
        elements.append((tag, data[at : at + size]))
        at += size
    return elements
