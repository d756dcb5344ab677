"""What a client's properties mean to us: how the cluster is reached, and as whom.

One rule: of what decides about security nothing is passed over. A setting that is not understood is refused, with what
to do instead, because to go on without it could be less safe than the operator believes. What is no matter of security
is named as not used and does no harm.
"""

import base64
import binascii
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headgate.base.errors import UsageError
from headgate.config.addresses import Address
from headgate.kafka.client_properties import LoginModule, parse_jaas
from headgate.kafka.connections import Dialler
from headgate.kafka.sasl import Credentials

_PROTOCOLS = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
_MODULES = {"PLAIN": "PlainLoginModule", "SCRAM-SHA-256": "ScramLoginModule", "SCRAM-SHA-512": "ScramLoginModule"}
_TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_SASL_KEYS = frozenset({"sasl.mechanism", "sasl.jaas.config"})
_TLS_KEYS = frozenset(
    {
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.certificates",
        "ssl.endpoint.identification.algorithm",
        "ssl.enabled.protocols",
    }
)
_USED = _SASL_KEYS | _TLS_KEYS | {"security.protocol", "request.timeout.ms", "default.api.timeout.ms"}

# Keys that say how, not whom to trust: without them nothing is less safe.
_HARMLESS = re.compile(
    r"sasl\.(kerberos|oauthbearer|login\.(refresh|connect|read|retry))\..*"
    r"|ssl\.(protocol|provider|truststore\.password|trustmanager\.algorithm|keymanager\.algorithm"
    r"|secure\.random\.implementation)"
)
_CERTIFICATE = re.compile(r"-+BEGIN CERTIFICATE-+([A-Za-z0-9+/=\s]+)-+END CERTIFICATE-+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """`unused` names the keys that were passed over."""

    dialler: Dialler
    unused: tuple[str, ...] = ()


def settings_of(properties: Mapping[str, str], bootstrap: tuple[Address, ...]) -> ClientSettings:
    """How the properties reach the servers in `bootstrap`; `UsageError` for what is wrong or not understood."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise UsageError(f"security.protocol must be one of {', '.join(_PROTOCOLS)}")
    has_tls, has_sasl = _PROTOCOLS[protocol]
    _refuse_unknown(properties, has_tls=has_tls, has_sasl=has_sasl)
    default = Dialler(bootstrap=bootstrap)
    dialler = Dialler(
        bootstrap=bootstrap,
        tls=_tls(properties) if has_tls else None,
        credentials=_credentials(properties) if has_sasl else None,
        call_timeout_s=_seconds(properties, "request.timeout.ms", default.call_timeout_s),
        timeout_s=_seconds(properties, "default.api.timeout.ms", default.timeout_s),
    )
    return ClientSettings(dialler=dialler, unused=tuple(sorted(properties.keys() - _USED)))


def _refuse_unknown(properties: Mapping[str, str], *, has_tls: bool, has_sasl: bool) -> None:
    for key in sorted(properties.keys() - _USED):
        if _HARMLESS.fullmatch(key):
            continue
        if has_tls and key.startswith(("ssl.keystore.", "ssl.key.")):
            raise UsageError(
                f"{key}: client certificates are not understood here; log in with SASL (security.protocol=SASL_SSL), "
                "or use Kafka's own tool"
            )
        decides = (
            (has_tls and key.startswith("ssl."))
            or (has_sasl and key.startswith("sasl."))
            or key == "security.providers"
        )
        if decides or key.startswith("config.providers"):
            raise UsageError(f"{key} is not understood here: take it out of the file, or use Kafka's own tool")


def _seconds(properties: Mapping[str, str], key: str, default: float) -> float:
    text = properties.get(key)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()) or not int(text):
        raise UsageError(f"{key} must be a number of milliseconds above 0")
    return int(text) / 1000


def _credentials(properties: Mapping[str, str]) -> Credentials:
    mechanism = properties.get("sasl.mechanism", "").strip()
    if mechanism not in _MODULES:
        named = "is not set, which to Kafka means GSSAPI" if not mechanism else "names one that is not understood here"
        raise UsageError(f"sasl.mechanism {named}: set it to one of {', '.join(_MODULES)}")
    if "sasl.jaas.config" not in properties:
        raise UsageError("sasl.jaas.config is not set: it must name the login module, the user and the password")
    login = parse_jaas(properties["sasl.jaas.config"])
    _check_module(login, mechanism)
    return Credentials(user=login.options["username"], password=login.options["password"], mechanism=mechanism)


def _check_module(login: LoginModule, mechanism: str) -> None:
    module = _MODULES[mechanism]
    if login.name.rpartition(".")[2] != module:
        raise UsageError(f"sasl.jaas.config must name the {module} when sasl.mechanism is {mechanism}")
    missing = {"username", "password"} - login.options.keys()
    if missing:
        raise UsageError(f"sasl.jaas.config has no {' and no '.join(sorted(missing, reverse=True))}")
    if login.options.get("tokenauth", "").lower() == "true":
        raise UsageError("sasl.jaas.config: delegation tokens (tokenauth) are not understood here; name a user")


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    trusted = _trust(properties)
    context = ssl.create_default_context(cadata=trusted)  # without any, those of this machine
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _limit_versions(context, properties.get("ssl.enabled.protocols"))
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in {"", "https"}:
        raise UsageError("ssl.endpoint.identification.algorithm must be https, or empty for no check of the host name")
    context.check_hostname = algorithm == "https"
    return context


def _limit_versions(context: ssl.SSLContext, text: str | None) -> None:
    if text is None:
        return
    names = {name.strip() for name in text.split(",") if name.strip()}
    if not names or not names <= _TLS_VERSIONS.keys():
        raise UsageError(f"ssl.enabled.protocols must be of {', '.join(_TLS_VERSIONS)}")
    context.minimum_version = min(_TLS_VERSIONS[name] for name in names)
    context.maximum_version = max(_TLS_VERSIONS[name] for name in names)


def _trust(properties: Mapping[str, str]) -> bytes | None:
    """The certificates to trust, in DER one behind the other; None for those of this machine."""
    inline, location = properties.get("ssl.truststore.certificates"), properties.get("ssl.truststore.location")
    if inline is not None:
        return _certificates(inline, "ssl.truststore.certificates")
    if location is None:
        return None
    kind = properties.get("ssl.truststore.type", "JKS").strip().upper()
    if kind != "PEM":
        raise UsageError(
            f"ssl.truststore.type is {kind}, and only PEM is understood here: write the certificates as text "
            "(keytool -exportcert -rfc -keystore STORE -alias ALIAS), and set ssl.truststore.type=PEM and "
            "ssl.truststore.location to that file"
        )
    try:
        text = Path(location).read_text(encoding="latin-1")
    except OSError as failure:
        raise UsageError(f"ssl.truststore.location: {location} cannot be read: {failure.strerror}") from None
    return _certificates(text, "ssl.truststore.location")


def _certificates(text: str, key: str) -> bytes:
    """PEM as Kafka takes it: line breaks may have become spaces where a property was continued on further lines."""
    try:
        found = [base64.b64decode("".join(body.split()), validate=True) for body in _CERTIFICATE.findall(text)]
        if not found:
            raise UsageError(f"{key} holds no PEM certificate (-----BEGIN CERTIFICATE-----)")
        trusted = b"".join(found)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=trusted)
    except (binascii.Error, ssl.SSLError):
        raise UsageError(f"{key} holds a certificate that cannot be read") from None
    return trusted
