"""How librdkafka is told about the service account."""

from pathlib import Path

import pytest

from headgate.config.addresses import Address
from headgate.config.model import UpstreamConfig
from headgate.kafka.topics import client_settings


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("hunter2\n")
    return path


def test_without_an_account_it_is_plaintext() -> None:
    upstream = UpstreamConfig(bootstrap=(Address("a", 1), Address("::1", 2)))
    assert client_settings(upstream) == {"bootstrap.servers": "a:1,[::1]:2", "security.protocol": "PLAINTEXT"}


def test_tls_has_its_authorities() -> None:
    settings = client_settings(UpstreamConfig(tls=True, tls_ca=Path("/ca.pem"), service_mechanism="none"))
    assert (settings["security.protocol"], settings["ssl.ca.location"]) == ("SSL", "/ca.pem")


def test_the_password_is_the_files_first_line(password: Path) -> None:
    settings = client_settings(UpstreamConfig(service_user="hg", service_password_file=password))
    assert settings["security.protocol"] == "SASL_PLAINTEXT"
    assert (settings["sasl.mechanism"], settings["sasl.username"]) == ("SCRAM-SHA-512", "hg")
    assert settings["sasl.password"] == "hunter2"


def test_sasl_and_tls_go_together(password: Path) -> None:
    settings = client_settings(UpstreamConfig(tls=True, service_user="hg", service_password_file=password))
    assert settings["security.protocol"] == "SASL_SSL"
