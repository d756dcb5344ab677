"""The end of a certificate's validity, compared with what a library for X.509 makes and reads."""

import contextlib
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from headgate.proxy.certificate_expiry import expiry_of


def certificate(ends: datetime, *, name: str = "gateway") -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(ends)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM).decode()


@pytest.mark.parametrize("year", [2021, 2049, 2050, 9999])  # RFC 5280 writes years from 2050 in another form
def test_the_end_is_that_of_the_first_certificate(year: int) -> None:
    ends = datetime(year, 2, 28, 23, 59, 58, tzinfo=UTC)
    issuer = certificate(datetime(2030, 1, 1, tzinfo=UTC), name="issuer" * 10)
    assert expiry_of(f"a comment\n{certificate(ends)}{issuer}") == ends.timestamp()


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"])
def test_a_file_without_a_certificate_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="certificate"):
        expiry_of(text)


WHOLE = certificate(datetime(2030, 1, 1, tzinfo=UTC))


@given(st.integers(28, len(WHOLE) - 30), st.sampled_from("A/z0\n"))
def test_a_damaged_certificate_is_read_or_an_error(at: int, character: str) -> None:
    with contextlib.suppress(ValueError):
        expiry_of(WHOLE[:at] + character + WHOLE[at + 1 :])
