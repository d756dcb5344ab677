"""What a client's properties mean: understood, refused with what to do, or named as not used."""

import ssl
from pathlib import Path

import pytest

from headgate.base.errors import UsageError
from headgate.config.addresses import Address
from headgate.kafka.client_properties import ClientSettings, settings_of
from tests.support.certificates import Certificates, make_certificates

BOOTSTRAP = (Address("127.0.0.1", 9092),)
PASSWORD = "not-for-anybody"
PLAIN_LOGIN = f'x.y.PlainLoginModule required username="alice" password="{PASSWORD}";'
SCRAM_LOGIN = f'x.y.ScramLoginModule required username="alice" password="{PASSWORD}";'


def settings(**properties: str) -> ClientSettings:
    """`security__protocol` is the key security.protocol."""
    return settings_of({key.replace("__", "."): value for key, value in properties.items()}, BOOTSTRAP)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_without_properties_nobody_logs_in_and_nothing_is_encrypted() -> None:
    dialler = settings().dialler
    assert (dialler.bootstrap, dialler.tls, dialler.credentials) == (BOOTSTRAP, None, None)


@pytest.mark.parametrize(
    ("mechanism", "login"),
    [("PLAIN", PLAIN_LOGIN), ("SCRAM-SHA-256", SCRAM_LOGIN), ("SCRAM-SHA-512", SCRAM_LOGIN)],
)
def test_a_login_is_taken_from_the_jaas_line(mechanism: str, login: str) -> None:
    made = settings(security__protocol="sasl_plaintext", sasl__mechanism=mechanism, sasl__jaas__config=login)
    who = made.dialler.credentials
    assert who is not None
    assert (who.user, who.password, who.mechanism) == ("alice", PASSWORD, mechanism)
    assert made.dialler.tls is None
    assert PASSWORD not in repr(made)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"sasl.jaas.config": PLAIN_LOGIN}, "sasl.mechanism is not set, which to Kafka means GSSAPI"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": PLAIN_LOGIN}, "set it to one of PLAIN"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config is not set"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM_LOGIN}, "must name the PlainLoginModule"),
        ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": PLAIN_LOGIN}, "must name the ScramLoginModule"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "PlainLoginModule required;"}, "no username and no password"),
        (
            {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": SCRAM_LOGIN.replace(";", " tokenauth=true;")},
            "delegation tokens",
        ),
        (
            {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": PLAIN_LOGIN,
                "sasl.client.callback.handler.class": "com.example.Secrets",
            },
            "sasl.client.callback.handler.class is not understood here",
        ),
    ],
)
def test_a_login_that_is_not_understood_is_refused_without_its_secrets(properties: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError) as problem:
        settings_of({"security.protocol": "SASL_PLAINTEXT", **properties}, BOOTSTRAP)
    assert text in str(problem.value)
    assert PASSWORD not in str(problem.value)
    assert problem.value.__cause__ is None


def test_sasl_keys_do_not_matter_to_a_client_that_does_not_log_in() -> None:
    made = settings(security__protocol="PLAINTEXT", sasl__jaas__config="nonsense", sasl__login__class="x")
    assert made.dialler.credentials is None
    assert made.unused == ("sasl.login.class",)


def trusted(context: ssl.SSLContext | None) -> list[str]:
    assert context is not None
    return [str(one["subject"]) for one in context.get_ca_certs()]


def test_a_pem_trust_store_is_all_that_is_trusted(files: Certificates) -> None:
    made = settings(
        security__protocol="SSL", ssl__truststore__type="PEM", ssl__truststore__location=str(files.ca)
    ).dialler
    assert made.tls is not None
    assert len(trusted(made.tls)) == 1
    assert "headgate-test-authority" in trusted(made.tls)[0]
    assert made.tls.check_hostname
    assert made.tls.verify_mode is ssl.CERT_REQUIRED
    assert made.tls.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("between", ["\n", " "])
def test_certificates_may_stand_in_the_file_itself(files: Certificates, between: str) -> None:
    text = between.join(files.ca.read_text().splitlines())
    made = settings(security__protocol="SSL", ssl__truststore__type="PEM", ssl__truststore__certificates=text).dialler
    assert "headgate-test-authority" in trusted(made.tls)[0]


def test_an_empty_algorithm_is_no_check_of_the_host_name(files: Certificates) -> None:
    made = settings(
        security__protocol="SSL",
        ssl__truststore__type="PEM",
        ssl__truststore__location=str(files.ca),
        ssl__endpoint__identification__algorithm="",
    ).dialler
    assert made.tls is not None
    assert not made.tls.check_hostname
    assert made.tls.verify_mode is ssl.CERT_REQUIRED


def test_the_versions_of_tls_can_be_narrowed() -> None:
    made = settings(security__protocol="SSL", ssl__enabled__protocols="TLSv1.3").dialler
    assert made.tls is not None
    assert made.tls.minimum_version is made.tls.maximum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"ssl.truststore.location": "/x.jks"}, "ssl.truststore.type is JKS, and only PEM is understood here"),
        ({"ssl.truststore.location": "/x.p12", "ssl.truststore.type": "PKCS12"}, "keytool -exportcert -rfc"),
        ({"ssl.truststore.location": "/nowhere.pem", "ssl.truststore.type": "PEM"}, "/nowhere.pem cannot be read"),
        ({"ssl.truststore.certificates": "nothing"}, "holds no PEM certificate"),
        (
            {"ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----AAAA-----END CERTIFICATE-----"},
            "a certificate that cannot be read",
        ),
        (
            {"ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----AAAAA-----END CERTIFICATE-----"},
            "a certificate that cannot be read",
        ),
        ({"ssl.keystore.location": "/me.jks"}, "client certificates are not understood here; log in with SASL"),
        ({"ssl.key.password": PASSWORD}, "ssl.key.password: client certificates are not understood"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "ssl.cipher.suites is not understood here"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols must be of TLSv1.2, TLSv1.3"),
        ({"ssl.endpoint.identification.algorithm": "LDAPS"}, "must be https, or empty"),
        ({"security.providers": "x"}, "security.providers is not understood here"),
        ({"config.providers": "env"}, "config.providers is not understood here"),
    ],
)
def test_tls_that_is_not_understood_is_refused(properties: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError) as problem:
        settings_of({"security.protocol": "SSL", **properties}, BOOTSTRAP)
    assert text in str(problem.value)
    assert PASSWORD not in str(problem.value)


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(UsageError, match="must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"):
        settings(security__protocol="TLS")


def test_timeouts_are_taken_in_milliseconds() -> None:
    made = settings(request__timeout__ms="1500", default__api__timeout__ms="45000").dialler
    assert (made.call_timeout_s, made.timeout_s) == (1.5, 45.0)


@pytest.mark.parametrize("value", ["0", "-1", "soon", "", "1.5"])
def test_a_timeout_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match=r"request\.timeout\.ms must be a number of milliseconds"):
        settings(request__timeout__ms=value)


def test_what_is_no_matter_of_security_is_named_and_passed_over(tmp_path: Path) -> None:
    made = settings(
        client__id="x", ssl__truststore__location=str(tmp_path), ssl__protocol="TLS", bootstrap__servers="elsewhere:1"
    )
    assert made.unused == ("bootstrap.servers", "client.id", "ssl.protocol")
    assert made.dialler.bootstrap == BOOTSTRAP
