"""Properties files are read as Java reads them; their settings are used, rejected, or named as not used."""

import ssl
from pathlib import Path

import pytest

from headgate.base.errors import UsageError
from headgate.config.addresses import Address
from headgate.kafka.client_properties import (
    ClientSettings,
    librdkafka_settings,
    parse_jaas,
    parse_properties,
    read_properties,
    settings_of,
)
from tests.support.certificates import Certificates, make_certificates

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
BOOTSTRAP = (Address("127.0.0.1", 9092),)
PASSWORD = "not-for-anybody"
PLAIN_LOGIN = f'x.y.PlainLoginModule required username="alice" password="{PASSWORD}";'
SCRAM_LOGIN = f'x.y.ScramLoginModule required username="alice" password="{PASSWORD}";'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A key ends at the first equals sign, colon or space.
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a\t:\f b", {"a": "b"}),
        ("a==b", {"a": "=b"}),
        ("a = : b", {"a": ": b"}),
        ("  a=b", {"a": "b"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("\n \t\n", {}),
        # Comments.
        ("# a=b\n! c=d\n  # e=f\ng=h", {"g": "h"}),
        ("a=b # no comment", {"a": "b # no comment"}),
        ("# a comment is not continued \\\na=b", {"a": "b"}),
        ("a=b\\\n# c", {"a": "b# c"}),
        # An odd number of backslashes continues a line.
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b \\\r\n\tc \\\n d", {"a": "b c d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc", {"a": "b\\c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a\\\n=b", {"a": "b"}),
        # Escapes.
        (r"a\ b=c", {"a b": "c"}),
        (r"a\=b\:c=d", {"a=b:c": "d"}),
        (r"a=\t\n\r\f\\\q\#", {"a": "\t\n\r\f\\q#"}),
        (r"a=\u00e9\u20AC", {"a": "é€"}),
        (r"\u0061=b", {"a": "b"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("value", [r"secret\u12", r"secret\u", r"secret\uzzzz", r"secret\ud83d"])
def test_a_broken_escape_is_named_by_its_line_without_its_value(value: str) -> None:
    with pytest.raises(UsageError, match=r"^line 2: ") as problem:
        parse_properties(f"a=b\nc={value}\n")
    assert "secret" not in str(problem.value)


def test_a_file_is_latin_1_and_one_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_bytes(b"a=\xe9")
    assert read_properties(tmp_path / "client.properties") == {"a": "é"}
    with pytest.raises(UsageError, match=r"nowhere\.properties cannot be read: No such file"):
        read_properties(tmp_path / "nowhere.properties")
    (tmp_path / "broken.properties").write_text("a=\\u")
    with pytest.raises(UsageError, match=r"broken\.properties, line 1: "):
        read_properties(tmp_path / "broken.properties")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('username="alice" password="pw"', {"username": "alice", "password": "pw"}),
        ("username=alice password='p w'", {"username": "alice", "password": "p w"}),
        (r'password="a\"b\\c;d=e"', {"password": 'a"b\\c;d=e'}),
        (r'password="\101\t\q"', {"password": "A\tq"}),
        ('password = "pw" // no more', {"password": "pw"}),
        ("", {}),
    ],
)
def test_a_jaas_line_is_a_module_a_flag_and_options(options: str, expected: dict[str, str]) -> None:
    login = parse_jaas(f"{PLAIN} required {options}\n ;")
    assert (login.name, login.options) == (PLAIN, expected)
    assert "pw" not in f"{login} {login!r} {[login]}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        f'{PLAIN} required /* who */ username="al\nice";',
        f'{PLAIN} required username="alice" password="not-for-anybody"',
        f'{PLAIN} username="alice" password="not-for-anybody";',
        f'{PLAIN} required username="alice" password;',
        f'{PLAIN} required username "alice" password "not-for-anybody";',
        f'{PLAIN} required password="not-for-anybody;',
        f"{PLAIN} required password=not-for-anybody! ;",
        f'{PLAIN} required password="not-for-anybody"; {PLAIN} required;',
    ],
)
def test_an_invalid_jaas_line_is_rejected_and_not_shown(text: str) -> None:
    with pytest.raises(UsageError, match=r"^sasl\.jaas\.config ") as problem:
        parse_jaas(text)
    assert "not-for-anybody" not in str(problem.value)
    assert "alice" not in str(problem.value)


# What the properties mean.


def settings(**properties: str) -> ClientSettings:
    """`security__protocol` is the key security.protocol."""
    return settings_of({key.replace("__", "."): value for key, value in properties.items()}, BOOTSTRAP)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(
    ("mechanism", "login"),
    [("PLAIN", PLAIN_LOGIN), ("SCRAM-SHA-256", SCRAM_LOGIN), ("SCRAM-SHA-512", SCRAM_LOGIN)],
)
def test_the_credentials_come_from_the_jaas_line(mechanism: str, login: str) -> None:
    made = settings(security__protocol="sasl_plaintext", sasl__mechanism=mechanism, sasl__jaas__config=login)
    credentials = made.dialler.credentials
    assert credentials is not None
    assert (credentials.user, credentials.password, credentials.mechanism) == ("alice", PASSWORD, mechanism)
    assert made.dialler.tls is None
    assert PASSWORD not in repr(made)


@pytest.mark.parametrize(
    ("protocol", "properties", "text"),
    [
        ("TLS", {}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("SASL_PLAINTEXT", {"sasl.jaas.config": PLAIN_LOGIN}, "sasl.mechanism is not set, which to Kafka means GSSAPI"),
        (
            "SASL_PLAINTEXT",
            {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": PLAIN_LOGIN},
            "set it to one of PLAIN",
        ),
        ("SASL_PLAINTEXT", {"sasl.mechanism": "PLAIN"}, "sasl.jaas.config is not set"),
        (
            "SASL_PLAINTEXT",
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM_LOGIN},
            "must name the PlainLoginModule",
        ),
        (
            "SASL_PLAINTEXT",
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "PlainLoginModule required;"},
            "no username and no password",
        ),
        (
            "SASL_PLAINTEXT",
            {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": SCRAM_LOGIN.replace(";", " tokenauth=true;")},
            "delegation tokens",
        ),
        (
            "SASL_PLAINTEXT",
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN_LOGIN, "sasl.client.callback.handler.class": "x.Y"},
            "sasl.client.callback.handler.class is not supported",
        ),
        ("SSL", {"ssl.truststore.location": "/x.jks"}, "ssl.truststore.type is JKS, and only PEM is supported"),
        ("SSL", {"ssl.truststore.location": "/x", "ssl.truststore.type": "PKCS12"}, "keytool -exportcert -rfc"),
        ("SSL", {"ssl.truststore.location": "/no.pem", "ssl.truststore.type": "PEM"}, "/no.pem cannot be read"),
        ("SSL", {"ssl.truststore.certificates": "nothing"}, "holds no PEM certificate"),
        *(
            (
                "SSL",
                {"ssl.truststore.certificates": f"-----BEGIN CERTIFICATE-----{text}-----END CERTIFICATE-----"},
                "a certificate that cannot be read",
            )
            for text in ("AAAA", "AAAAA")
        ),
        ("SSL", {"ssl.keystore.location": "/me.jks"}, "client certificates are not supported; log in with SASL"),
        ("SSL", {"ssl.key.password": PASSWORD}, "ssl.key.password: client certificates are not supported"),
        ("SSL", {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "ssl.cipher.suites is not supported"),
        ("SSL", {"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols must be of TLSv1.2, TLSv1.3"),
        ("SSL", {"ssl.endpoint.identification.algorithm": "LDAPS"}, "must be https, or empty"),
        ("SSL", {"security.providers": "x"}, "security.providers is not supported"),
        ("PLAINTEXT", {"config.providers": "env"}, "config.providers is not supported"),
        *(
            ("PLAINTEXT", {"request.timeout.ms": value}, "must be a number of milliseconds")
            for value in ("0", "-1", "soon", "", "1.5")
        ),
    ],
)
def test_a_setting_that_is_not_supported_is_rejected_without_its_secrets(
    protocol: str, properties: dict[str, str], text: str
) -> None:
    with pytest.raises(UsageError) as problem:
        settings_of({"security.protocol": protocol, **properties}, BOOTSTRAP)
    assert text in str(problem.value)
    assert PASSWORD not in str(problem.value)
    assert problem.value.__cause__ is None


@pytest.mark.parametrize("source", ["file", "lines", "one line"])
def test_only_the_pem_trust_store_is_trusted(files: Certificates, source: str) -> None:
    text = (" " if source == "one line" else "\n").join(files.ca.read_text().splitlines())
    where = (
        {"ssl__truststore__location": str(files.ca)} if source == "file" else {"ssl__truststore__certificates": text}
    )
    tls = settings(security__protocol="SSL", ssl__truststore__type="PEM", **where).dialler.tls
    assert tls is not None
    (authority,) = tls.get_ca_certs()
    assert "headgate-test-authority" in str(authority["subject"])
    assert (tls.check_hostname, tls.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert tls.minimum_version is ssl.TLSVersion.TLSv1_2


def test_the_check_of_host_names_and_the_tls_versions_can_be_set() -> None:
    tls = settings(
        security__protocol="SSL", ssl__endpoint__identification__algorithm="", ssl__enabled__protocols="TLSv1.3"
    ).dialler.tls
    assert tls is not None
    assert (tls.check_hostname, tls.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert tls.minimum_version is tls.maximum_version is ssl.TLSVersion.TLSv1_3


def test_settings_that_do_not_matter_are_named_and_not_used() -> None:
    made = settings(
        client__id="x",
        ssl__truststore__location="/nowhere",
        ssl__protocol="TLS",
        bootstrap__servers="elsewhere:1",
        sasl__jaas__config="nonsense",
        sasl__login__class="x",
        request__timeout__ms="1500",
        default__api__timeout__ms="45000",
    )
    assert made.unused == ("bootstrap.servers", "client.id", "sasl.login.class", "ssl.protocol")
    dialler = made.dialler
    assert (dialler.bootstrap, dialler.tls, dialler.credentials) == (BOOTSTRAP, None, None)
    assert (dialler.call_timeout_s, dialler.timeout_s) == (1.5, 45.0)


def test_librdkafka_gets_the_same_settings(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": SCRAM_LOGIN,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "ssl.endpoint.identification.algorithm": "",
    }
    settings = librdkafka_settings(properties, BOOTSTRAP)
    assert ssl.PEM_cert_to_DER_cert(settings.pop("ssl.ca.pem")) == ssl.PEM_cert_to_DER_cert(certificates.ca.read_text())
    assert settings == {
        "bootstrap.servers": "127.0.0.1:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "ssl.endpoint.identification.algorithm": "none",
    }
    with pytest.raises(UsageError, match="is not supported by this command"):
        librdkafka_settings({**properties, "ssl.enabled.protocols": "TLSv1.3"}, BOOTSTRAP)


def test_librdkafka_without_security_has_the_address_alone() -> None:
    assert librdkafka_settings({}, BOOTSTRAP) == {
        "bootstrap.servers": "127.0.0.1:9092",
        "security.protocol": "PLAINTEXT",
    }
