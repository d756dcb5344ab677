"""What keys say together: every check that needs more than one of them stands here and nowhere else.

One rule: a rule is pure and yields findings. A finding names all keys that it rests on, the one to change first, so
that it is dropped when one of them is itself broken: nobody wants the echo of another problem.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headgate.base.ids import ApiKey
from headgate.config.addresses import MAX_PORT, Address, is_loopback, is_wildcard, may_collide
from headgate.config.environment import variable_name
from headgate.config.model import Config
from headgate.config.problems import path_text, shown
from headgate.config.values import GroupPatterns

METADATA, API_VERSIONS = ApiKey(3), ApiKey(18)
_CONNECT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence about the first of `paths`, which rests on all of them."""

    paths: tuple[str, ...]
    text: str


Rule = Callable[[Config], Iterator[Finding]]


def findings(config: Config) -> Iterator[Finding]:
    """Everything that makes the configuration unusable."""
    for rule in _RULES:
        yield from rule(config)


def warnings(config: Config) -> Iterator[Finding]:
    """What an operator should know and may want: `config check` prints it, and it stops nothing."""
    if config.gateway.tls_client_ca is not None:
        yield Finding(
            ("gateway.tls_client_ca",),
            "a client certificate opens the listener and is no identity at the broker: give ACLs to SASL users",
        )
    if config.upstream.service_mechanism == "none":
        yield Finding(
            ("upstream.service_mechanism",),
            "without SASL every client is the same principal to the brokers: it must not be a super user",
        )
    if config.upstream.service_mechanism == "PLAIN" and config.upstream.service_user and not config.upstream.tls:
        yield Finding(
            ("upstream.service_mechanism", "upstream.tls"),
            "PLAIN without TLS sends the password as it is: set upstream.tls = true, or use SCRAM-SHA-512",
        )


def _clients_can_dial_us(config: Config) -> Iterator[Finding]:
    if is_wildcard(config.gateway.advertised_host):
        yield Finding(
            ("gateway.advertised_host", "gateway.listen"),
            "clients cannot dial a wildcard address: set it to the name or address by which clients reach the gateway",
        )


def _node_ports_exist(config: Config) -> Iterator[Finding]:
    gateway = config.gateway
    highest = gateway.nodes[-1]
    port = gateway.listen.port + 1 + highest
    if port > MAX_PORT:
        yield Finding(
            ("gateway.nodes", "gateway.listen"),
            f"node {highest} would listen on port {port} (listen's port + 1 + node id), and ports end at {MAX_PORT}: "
            "lower the port of gateway.listen, or name only the ids of real brokers",
        )


def _listeners_do_not_collide(config: Config) -> Iterator[Finding]:
    for path, address in (("metrics.listen", config.metrics.listen), ("web.listen", config.web.listen)):
        for taken in config.gateway.addresses():
            if may_collide(taken, address):
                what = "gateway.listen" if taken == config.gateway.listen else _node_of(config, taken)
                yield Finding(
                    (path, "gateway.listen", "gateway.nodes"),
                    f"port {address.port} belongs to {what}: choose a port outside the gateway's range",
                )
    if may_collide(config.metrics.listen, config.web.listen):
        yield Finding(
            ("metrics.listen", "web.listen"),
            f"port {config.metrics.listen.port} belongs to web.listen too: choose another for one of them",
        )


def _node_of(config: Config, address: Address) -> str:
    return f"node {address.port - config.gateway.listen.port - 1} of gateway.nodes"


def _upstream_is_not_ourselves(config: Config) -> Iterator[Finding]:
    ours = {address.port for address in config.gateway.addresses()}
    listen, advertised = config.gateway.listen.host, config.gateway.advertised_host
    names = {listen.lower(), advertised.lower()}
    local = is_wildcard(listen) or is_loopback(listen)
    for address in config.upstream.bootstrap:
        if is_wildcard(address.host):
            yield Finding(("upstream.bootstrap",), f"{address} cannot be dialled: write a broker's name or address")
        elif address.port in ours and (address.host.lower() in names or (local and is_loopback(address.host))):
            yield Finding(
                ("upstream.bootstrap", "gateway.listen", "gateway.nodes", "gateway.advertised_host"),
                f"{address} is the gateway's own address: name the brokers' own listeners",
            )
    if len(set(config.upstream.bootstrap)) != len(config.upstream.bootstrap):
        yield Finding(("upstream.bootstrap",), "names an address twice: name each broker once")


def _tls_files_come_in_pairs(config: Config) -> Iterator[Finding]:
    for name, section in (("gateway", config.gateway), ("web", config.web)):
        cert, key = f"{name}.tls_cert", f"{name}.tls_key"
        if section.tls_cert is not None and section.tls_key is None:
            yield Finding((key, cert), f"is missing: {cert} needs the private key that belongs to it")
        if section.tls_key is not None and section.tls_cert is None:
            yield Finding((cert, key), f"is missing: {key} needs the certificate that belongs to it")
    if config.gateway.tls_client_ca is not None and config.gateway.tls_cert is None:
        yield Finding(
            ("gateway.tls_client_ca", "gateway.tls_cert"),
            "client certificates need TLS on the listener: set gateway.tls_cert and gateway.tls_key",
        )
    if config.upstream.tls_ca is not None and not config.upstream.tls:
        yield Finding(
            ("upstream.tls_ca", "upstream.tls"), "is used only with upstream.tls = true: set it, or drop this"
        )


def _service_account_is_whole(config: Config) -> Iterator[Finding]:
    upstream = config.upstream
    user, password, mechanism = (f"upstream.service_{key}" for key in ("user", "password_file", "mechanism"))
    if upstream.service_user is not None and upstream.service_password_file is None:
        yield Finding((password, user), f"is missing: {user} needs a file that holds its password")
    if upstream.service_password_file is not None and upstream.service_user is None:
        yield Finding((user, password), f"is missing: {password} needs the user that it belongs to")
    if upstream.service_user is not None and upstream.service_mechanism == "none":
        yield Finding(
            (mechanism, user), f'"none" means no SASL, but {user} is set: name the mechanism, or drop the user'
        )


def _identity_reaches_the_broker(config: Config) -> Iterator[Finding]:
    """Behind a gateway that ends TLS a certificate names nobody: only SASL tells the broker who the client is.

    In a cluster without SASL every client becomes the gateway's own principal, and where that is a super user, so is
    everybody (KAFKA-FACTS 9). It has to be said out loud: `service_mechanism = "none"`.
    """
    upstream = config.upstream
    if upstream.service_user is not None or upstream.service_mechanism == "none":
        return
    rest = ("upstream.service_password_file", "upstream.service_mechanism")
    how = (
        "set upstream.service_user and upstream.service_password_file, "
        'or set upstream.service_mechanism = "none" if the cluster has no SASL and that is meant'
    )
    if upstream.tls:
        yield Finding(
            ("upstream.service_user", "upstream.tls", *rest),
            f"a TLS upstream without SASL makes every client the same principal at the brokers: {how}",
        )
    elif config.gateway.tls_client_ca is not None:
        yield Finding(
            ("upstream.service_user", "gateway.tls_client_ca", *rest),
            f"client certificates are no identity at the brokers, and without SASL there is none: {how}",
        )


def _store_fits_the_workers(config: Config) -> Iterator[Finding]:
    scheme, workers = config.topologies.store.scheme, config.gateway.workers
    if scheme in {"sqlite", "memory"} and workers > 1:
        yield Finding(
            ("topologies.store", "gateway.workers"),
            f"{scheme}: serves one process, and gateway.workers is {workers}: "
            "use kafka: or postgresql://, or set gateway.workers = 1",
        )


def _clients_can_start(config: Config) -> Iterator[Finding]:
    denied = config.gateway.deny_api_keys & {METADATA, API_VERSIONS}
    if denied:
        yield Finding(
            ("gateway.deny_api_keys",),
            f"no client can start without {' and '.join(map(str, sorted(denied)))} (Metadata is 3, ApiVersions 18): "
            "take it off the list",
        )


def _limits_can_be_reached(config: Config) -> Iterator[Finding]:
    limit = config.gateway.max_connections_per_address
    if limit is not None and limit > config.gateway.max_connections:
        yield Finding(
            ("gateway.max_connections_per_address", "gateway.max_connections"),
            f"is above gateway.max_connections ({config.gateway.max_connections}): lower it, or leave it out",
        )


def _topics_are_apart(config: Config) -> Iterator[Finding]:
    facts, letters = config.facts.prefix, config.share_groups.dlq_prefix
    if facts.startswith(letters) or letters.startswith(facts):
        yield Finding(
            ("share_groups.dlq_prefix", "facts.prefix"),
            "one of facts.prefix and share_groups.dlq_prefix begins with the other: dead letters would mix with facts",
        )
    if GroupPatterns(allow=config.replay.topics).matches(config.replay.parking_topic):
        yield Finding(
            ("replay.parking_topic", "replay.topics"),
            "is matched by replay.topics, so a parked record would be put back: choose another name",
        )


def _connect_clusters_are_told_apart(config: Config) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for name, cluster in config.connect.items():
        path = path_text(("connect", name))
        if not _CONNECT_NAME.fullmatch(name):
            yield Finding(
                (path,), "the name must be 1 to 64 letters, digits, '.', '_' and '-', a letter or digit first"
            )
        other = seen.setdefault(variable_name(name), name)
        if other != name:
            yield Finding(
                (path,), f"has the same variables as connect.{shown(other)} (HEADGATE_CONNECT_...): rename one"
            )
        if cluster.record and not cluster.principals:
            yield Finding(
                (f"{path}.principals", f"{path}.record"),
                "is empty, and anybody can call itself a connector: name the principals of the Connect workers, "
                'such as "User:connect"',
            )
        if cluster.status_topic == cluster.config_topic:
            yield Finding(
                (f"{path}.config_topic", f"{path}.status_topic"), "is the status topic too: Connect has one for each"
            )


def _web_is_guarded(config: Config) -> Iterator[Finding]:
    if not is_loopback(config.web.listen.host) and config.web.tokens_file is None:
        yield Finding(
            ("web.tokens_file", "web.listen"),
            "is missing: the page can pause groups and web.listen is open to other machines: "
            "set it, or listen on 127.0.0.1",
        )


_RULES: tuple[Rule, ...] = (
    _clients_can_dial_us,
    _node_ports_exist,
    _listeners_do_not_collide,
    _upstream_is_not_ourselves,
    _tls_files_come_in_pairs,
    _service_account_is_whole,
    _identity_reaches_the_broker,
    _store_fits_the_workers,
    _clients_can_start,
    _limits_can_be_reached,
    _topics_are_apart,
    _connect_clusters_are_told_apart,
    _web_is_guarded,
)
