"""Certificates are read again when their files change, and files that cannot be used leave the old ones in place."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from structlog.typing import EventDict

from headgate.base.errors import UsageError
from headgate.gateway.tls import Certificates
from tests.support.certificates import Certificates as Files
from tests.support.certificates import make_certificates


def server_side(files: Files, *, ca: Path | None = None) -> Certificates:
    return Certificates("gateway.tls_cert", (files.server_cert, files.server_key), server=True, ca=ca)


def assert_names(certificates: Certificates, *words: str) -> None:
    assert all(word in (certificates.problem or "") for word in words), certificates.problem


@pytest.fixture
def own(tmp_path: Path) -> Files:
    return make_certificates(tmp_path / "own")


def test_certificates_are_read_again_only_when_a_file_has_changed(own: Files) -> None:
    certificates = server_side(own)
    first = certificates.context
    certificates.refresh()
    assert certificates.context is first
    shutil.copy(own.server_cert, own.server_cert.with_suffix(".new"))
    own.server_cert.with_suffix(".new").rename(own.server_cert)
    certificates.refresh()
    assert certificates.context is not first
    assert certificates.problem is None


def test_a_file_that_keeps_the_time_of_the_one_that_it_replaces_is_noticed(own: Files) -> None:
    certificates = server_side(own)
    first = certificates.context
    times = own.server_cert.stat()
    new = own.server_cert.with_suffix(".new")
    shutil.copy(own.server_cert, new)
    os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
    new.rename(own.server_cert)
    certificates.refresh()
    assert certificates.context is not first


def test_a_pair_that_is_exchanged_file_by_file_is_taken_when_both_are_there(
    own: Files, tmp_path: Path, logs: list[EventDict]
) -> None:
    other = make_certificates(tmp_path / "other", days=30)
    certificates = server_side(own)
    first, until_then = certificates.context, certificates.expires_at or 0
    shutil.copy(other.server_cert, own.server_cert)
    certificates.refresh()
    certificates.refresh()
    assert certificates.context is first
    assert certificates.expires_at == until_then
    assert_names(certificates, "gateway.tls_cert: these files cannot be used", str(own.server_key))
    shutil.copy(other.server_key, own.server_key)
    certificates.refresh()
    assert certificates.problem is None
    assert certificates.context is not first
    assert (certificates.expires_at or 0) > until_then
    events = [event["event"] for event in logs]
    assert events == ["certificates cannot be used, the old ones stay", "certificates read again"]


def test_a_file_that_is_gone_is_a_problem_until_it_is_back(own: Files) -> None:
    certificates = server_side(own, ca=own.ca)
    away = own.ca.rename(own.ca.with_suffix(".away"))
    certificates.refresh()
    assert certificates.problem is not None
    away.rename(own.ca)
    certificates.refresh()
    assert certificates.problem is None


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(own: Files) -> None:
    key = str(own.server_key)
    words = ["openssl", "ec", "-in", key, "-aes256", "-passout", "pass:secret", "-out", key]
    subprocess.run(words, check=True, capture_output=True)
    with pytest.raises(UsageError, match="the private key is encrypted: store it without a password"):
        server_side(own)
