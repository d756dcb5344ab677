r"""The files of `--command-config`: Java properties, the JAAS lines in them, and what they mean to Headgate's clients.

Invariants: files are read as Java reads them (`java.util.Properties.load`, ISO-8859-1), so that one file serves Kafka's
tools and ours. No error shows a value: any of them may hold a password. No setting about security is ignored: one that
is not supported is an error that says what to do instead, because to go on without it could be less safe than the
operator believes. Other settings that are not used are named, and do no harm.
"""

import base64
import binascii
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headgate.base.errors import UsageError
from headgate.config.addresses import Address
from headgate.kafka.connections import Credentials, Dialler

_LARGEST_FILE = 1024 * 1024
_SPACE = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ENTRY = re.compile(
    r"""
    (?P<key> (?: \\. | [^\\=:\ \t\f] )* )
    [ \t\f]* [=:]? [ \t\f]*
    (?P<value> .* )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|u|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

_JAAS_TOKEN = re.compile(
    r"""
    \s+ | //[^\n]* | /\*.*?\*/
    | " (?P<double> (?: \\. | [^"\\\n] )* ) "
    | ' (?P<single> (?: \\. | [^'\\\n] )* ) '
    | (?P<word> [\w$.-]+ )
    | (?P<sign> [=;] )
    """,
    re.VERBOSE | re.DOTALL,
)
_JAAS_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_JAAS_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry of a JAAS configuration; its options hold secrets and are not shown."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r})"


def read_properties(file: Path) -> dict[str, str]:
    """The properties of a file; `UsageError` when it cannot be read."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST_FILE + 1)
    except OSError as failure:
        raise UsageError(f"{file} cannot be read: {failure.strerror}") from None
    if len(content) > _LARGEST_FILE:
        raise UsageError(f"{file} has more than {_LARGEST_FILE} bytes: it is not a properties file")
    try:
        return parse_properties(content.decode("latin-1"))
    except UsageError as problem:
        raise UsageError(f"{file}, {problem}") from None


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values; the last value of a key counts."""
    found = {}
    for number, line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        assert entry is not None  # every text is a key and a value, each perhaps empty
        found[_unescaped(entry["key"], number)] = _unescaped(entry["value"], number)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines with the number of their first line, without comments and empty lines."""
    lines = iter(enumerate(_LINE_END.split(text), 1))
    for number, natural in lines:
        line = natural.lstrip(_SPACE)
        if line.startswith(("#", "!")):
            continue
        while _is_continued(line):
            _, more = next(lines, (0, ""))
            line = line[:-1] + more.lstrip(_SPACE)
        if line:
            yield number, line


def _is_continued(line: str) -> bool:
    """An odd number of backslashes at the end: the last one escapes the line's end."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str, line: int) -> str:
    def meant(escape: re.Match[str]) -> str:
        what = escape[1]
        if what == "u":
            raise UsageError(f"line {line}: \\u must be followed by four hexadecimal digits")
        if len(what) > 1:
            return chr(int(what[1:], 16))
        return _CONTROLS.get(what, what)

    plain = _ESCAPE.sub(meant, text)
    try:
        # Java writes a character beyond U+FFFF as two escapes.
        return plain.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError:
        raise UsageError(f"line {line}: a \\u escape is half of a character; write both halves") from None


def parse_jaas(text: str) -> LoginModule:
    """The one login module of `sasl.jaas.config`: `MODULE required key="value" ... ;`."""
    tokens = list(_jaas_tokens(text))
    if len(tokens) < 3 or tokens[-1] != (True, ";"):
        raise _not_jaas("must be MODULE required key=\"value\" ...; and end with ';'")
    (_, name), (_, flag), *rest = tokens[:-1]
    if flag.lower() not in _FLAGS:
        raise _not_jaas("its second word must be required")
    if len(rest) % 3:
        raise _not_jaas("after the second word it must have options key=\"value\" and one ';' at its end")
    options = {}
    for place in range(0, len(rest), 3):
        (key_is_sign, key), equals, (value_is_sign, value) = rest[place : place + 3]
        if key_is_sign or equals != (True, "=") or value_is_sign:
            raise _not_jaas("after the second word it must have options key=\"value\" and one ';' at its end")
        options[key] = value
    return LoginModule(name, options)


def _jaas_tokens(text: str) -> Iterator[tuple[bool, str]]:
    """Words and signs; True marks a sign, because a quoted ";" is none."""
    place = 0
    while place < len(text):
        token = _JAAS_TOKEN.match(text, place)
        if token is None:
            raise _not_jaas('has a character that must stand in quotes, or quotes that do not end: write key="value"')
        place = token.end()
        quoted = token["double"] if token["double"] is not None else token["single"]
        if quoted is not None:
            yield False, _JAAS_ESCAPE.sub(_jaas_meant, quoted)
        elif token["word"] is not None:
            yield False, token["word"]
        elif token["sign"] is not None:
            yield True, token["sign"]


def _jaas_meant(escape: re.Match[str]) -> str:
    what = escape[1]
    return chr(int(what, 8)) if what[0] in "01234567" else _JAAS_CONTROLS.get(what, what)


def _not_jaas(why: str) -> UsageError:
    return UsageError(f"sasl.jaas.config {why}")


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

# Keys without which a connection is not less secure.
_HARMLESS = re.compile(
    r"sasl\.(kerberos|oauthbearer|login\.(refresh|connect|read|retry))\..*"
    r"|ssl\.(protocol|provider|truststore\.password|trustmanager\.algorithm|keymanager\.algorithm"
    r"|secure\.random\.implementation)"
)
_CERTIFICATE = re.compile(r"-+BEGIN CERTIFICATE-+([A-Za-z0-9+/=\s]+)-+END CERTIFICATE-+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The settings of a connection; `unused` names the keys that were ignored."""

    dialler: Dialler
    unused: tuple[str, ...] = ()


def settings_of(properties: Mapping[str, str], bootstrap: tuple[Address, ...]) -> ClientSettings:
    """The connection settings for `bootstrap`; `UsageError` for an invalid or unsupported property."""
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


def librdkafka_settings(properties: Mapping[str, str], bootstrap: tuple[Address, ...]) -> dict[str, str]:
    """The same settings for a client of librdkafka; `UsageError` also for what it cannot do."""
    dialler = settings_of(properties, bootstrap).dialler
    has_tls, has_sasl = dialler.tls is not None, dialler.credentials is not None
    settings = {
        "bootstrap.servers": ",".join(map(str, bootstrap)),
        "security.protocol": ("SASL_" if has_sasl else "") + ("SSL" if has_tls else "PLAINTEXT"),
    }
    if dialler.credentials is not None:
        settings |= {
            "sasl.mechanism": dialler.credentials.mechanism,
            "sasl.username": dialler.credentials.user,
            "sasl.password": dialler.credentials.password,
        }
    if dialler.tls is not None:
        if "ssl.enabled.protocols" in properties:
            raise UsageError("ssl.enabled.protocols is not supported by this command: remove it from the file")
        settings["ssl.endpoint.identification.algorithm"] = "https" if dialler.tls.check_hostname else "none"
        if {"ssl.truststore.location", "ssl.truststore.certificates"} & properties.keys():
            trusted = dialler.tls.get_ca_certs(binary_form=True)
            settings["ssl.ca.pem"] = "".join(map(ssl.DER_cert_to_PEM_cert, trusted))
    return settings


def _refuse_unknown(properties: Mapping[str, str], *, has_tls: bool, has_sasl: bool) -> None:
    for key in sorted(properties.keys() - _USED):
        if _HARMLESS.fullmatch(key):
            continue
        if has_tls and key.startswith(("ssl.keystore.", "ssl.key.")):
            raise UsageError(
                f"{key}: client certificates are not supported; log in with SASL (security.protocol=SASL_SSL), "
                "or use Kafka's own tool"
            )
        decides = (
            (has_tls and key.startswith("ssl."))
            or (has_sasl and key.startswith("sasl."))
            or key == "security.providers"
        )
        if decides or key.startswith("config.providers"):
            raise UsageError(f"{key} is not supported: remove it from the file, or use Kafka's own tool")


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
        named = "is not set, which to Kafka means GSSAPI" if not mechanism else "names an unsupported mechanism"
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
        raise UsageError("sasl.jaas.config: delegation tokens (tokenauth) are not supported; name a user")


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
    """The trusted certificates in DER, concatenated; None for those of this machine."""
    inline, location = properties.get("ssl.truststore.certificates"), properties.get("ssl.truststore.location")
    if inline is not None:
        return _certificates(inline, "ssl.truststore.certificates")
    if location is None:
        return None
    kind = properties.get("ssl.truststore.type", "JKS").strip().upper()
    if kind != "PEM":
        raise UsageError(
            f"ssl.truststore.type is {kind}, and only PEM is supported: write the certificates as text "
            "(keytool -exportcert -rfc -keystore STORE -alias ALIAS), and set ssl.truststore.type=PEM and "
            "ssl.truststore.location to that file"
        )
    try:
        text = Path(location).read_text(encoding="latin-1")
    except OSError as failure:
        raise UsageError(f"ssl.truststore.location: {location} cannot be read: {failure.strerror}") from None
    return _certificates(text, "ssl.truststore.location")


def _certificates(text: str, key: str) -> bytes:
    """Decode PEM as Kafka does: line breaks may be spaces where a property was continued on further lines."""
    try:
        found = [base64.b64decode("".join(body.split()), validate=True) for body in _CERTIFICATE.findall(text)]
        if not found:
            raise UsageError(f"{key} holds no PEM certificate (-----BEGIN CERTIFICATE-----)")
        trusted = b"".join(found)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=trusted)
    except (binascii.Error, ssl.SSLError):
        raise UsageError(f"{key} holds a certificate that cannot be read") from None
    return trusted
