"""All checks that need more than one key of the configuration.

A rule is pure and yields violations. A violation names all keys that it depends on, the one to change first, and is
dropped when one of them is itself invalid, so that one mistake is reported once.
"""

import re
from collections.abc import Callable, Iterator

from headgate.base.ids import ApiKey
from headgate.base.locations import ObjectLocation
from headgate.config.addresses import MAX_PORT, Address, is_loopback, is_wildcard, may_collide
from headgate.config.environment import variable_name
from headgate.config.model import Config
from headgate.config.problems import Violation, path_text, shown

_CONNECT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


Rule = Callable[[Config], Iterator[Violation]]


def violations(config: Config) -> Iterator[Violation]:
    """Everything that makes the configuration unusable."""
    for rule in _RULES:
        yield from rule(config)


def warnings(config: Config) -> Iterator[Violation]:
    """What is allowed and may be a mistake: `config check` prints it, and it stops nothing."""
    if config.gateway.tls_client_ca is not None:
        yield Violation(
            ("gateway.tls_client_ca",),
            "a client certificate opens the listener and is not an identity at the broker: grant ACLs to SASL users",
        )
    if config.upstream.service_mechanism == "none":
        yield Violation(
            ("upstream.service_mechanism",),
            "without SASL every client is the same principal to the brokers: it must not be a super user",
        )
    if config.upstream.service_mechanism == "PLAIN" and config.upstream.service_user and not config.upstream.tls:
        yield Violation(
            ("upstream.service_mechanism", "upstream.tls"),
            "PLAIN without TLS sends the password unencrypted: set upstream.tls = true, or use SCRAM-SHA-512",
        )


def _clients_can_connect(config: Config) -> Iterator[Violation]:
    if is_wildcard(config.gateway.advertised_host):
        yield Violation(
            ("gateway.advertised_host", "gateway.listen"),
            "clients cannot connect to a wildcard address: write the name or address by which they reach the gateway",
        )


def _node_ports_exist(config: Config) -> Iterator[Violation]:
    gateway = config.gateway
    highest = gateway.nodes[-1]
    port = gateway.listen.port + 1 + highest
    if port > MAX_PORT:
        yield Violation(
            ("gateway.nodes", "gateway.listen"),
            f"node {highest} would listen on port {port} (listen's port + 1 + node id), and ports end at {MAX_PORT}: "
            "lower the port of gateway.listen, or name only the ids of real brokers",
        )


def _listeners_do_not_collide(config: Config) -> Iterator[Violation]:
    for path, address in (("metrics.listen", config.metrics.listen), ("web.listen", config.web.listen)):
        for taken in config.gateway.addresses():
            if may_collide(taken, address):
                what = "gateway.listen" if taken == config.gateway.listen else _node_of(config, taken)
                yield Violation(
                    (path, "gateway.listen", "gateway.nodes"),
                    f"port {address.port} belongs to {what}: choose a port outside the gateway's range",
                )
    if may_collide(config.metrics.listen, config.web.listen):
        yield Violation(
            ("metrics.listen", "web.listen"),
            f"port {config.metrics.listen.port} belongs to web.listen too: choose another for one of them",
        )


def _node_of(config: Config, address: Address) -> str:
    return f"node {address.port - config.gateway.listen.port - 1} of gateway.nodes"


def _upstream_is_not_the_gateway(config: Config) -> Iterator[Violation]:
    ours = {address.port for address in config.gateway.addresses()}
    listen, advertised = config.gateway.listen.host, config.gateway.advertised_host
    names = {listen.lower(), advertised.lower()}
    local = is_wildcard(listen) or is_loopback(listen)
    for address in config.upstream.bootstrap:
        if is_wildcard(address.host):
            yield Violation(("upstream.bootstrap",), f"{address} is a wildcard: write a broker's name or address")
        elif address.port in ours and (address.host.lower() in names or (local and is_loopback(address.host))):
            yield Violation(
                ("upstream.bootstrap", "gateway.listen", "gateway.nodes", "gateway.advertised_host"),
                f"{address} is the gateway's own address: name the brokers' own listeners",
            )
    if len(set(config.upstream.bootstrap)) != len(config.upstream.bootstrap):
        yield Violation(("upstream.bootstrap",), "names an address twice: name each broker once")


def _tls_files_come_in_pairs(config: Config) -> Iterator[Violation]:
    for name, section in (("gateway", config.gateway), ("web", config.web)):
        cert, key = f"{name}.tls_cert", f"{name}.tls_key"
        if section.tls_cert is not None and section.tls_key is None:
            yield Violation((key, cert), f"is missing: {cert} needs the private key that belongs to it")
        if section.tls_key is not None and section.tls_cert is None:
            yield Violation((cert, key), f"is missing: {key} needs the certificate that belongs to it")
    if config.gateway.tls_client_ca is not None and config.gateway.tls_cert is None:
        yield Violation(
            ("gateway.tls_client_ca", "gateway.tls_cert"),
            "client certificates need TLS on the listener: set gateway.tls_cert and gateway.tls_key",
        )
    if config.upstream.tls_ca is not None and not config.upstream.tls:
        yield Violation(
            ("upstream.tls_ca", "upstream.tls"), "is used only with upstream.tls = true: set it, or drop this"
        )


def _service_account_is_whole(config: Config) -> Iterator[Violation]:
    upstream = config.upstream
    user, password, mechanism = (f"upstream.service_{key}" for key in ("user", "password_file", "mechanism"))
    if upstream.service_user is not None and upstream.service_password_file is None:
        yield Violation((password, user), f"is missing: {user} needs a file that holds its password")
    if upstream.service_password_file is not None and upstream.service_user is None:
        yield Violation((user, password), f"is missing: {password} needs the user that it belongs to")
    if upstream.service_user is not None and upstream.service_mechanism == "none":
        yield Violation(
            (mechanism, user), f'"none" means no SASL, but {user} is set: name the mechanism, or drop the user'
        )


def _identity_reaches_the_broker(config: Config) -> Iterator[Violation]:
    """Behind a gateway that terminates TLS a client certificate is no identity: only SASL identifies the client.

    In a cluster without SASL every client becomes the gateway's own principal, and where that is a super user, every
    client is one (KAFKA-FACTS 9). The operator has to confirm this with `service_mechanism = "none"`.
    """
    upstream = config.upstream
    if upstream.service_user is not None or upstream.service_mechanism == "none":
        return
    rest = ("upstream.service_password_file", "upstream.service_mechanism")
    how = (
        "set upstream.service_user and upstream.service_password_file, "
        'or set upstream.service_mechanism = "none" if the cluster has no SASL and this is intended'
    )
    if upstream.tls:
        yield Violation(
            ("upstream.service_user", "upstream.tls", *rest),
            f"a TLS upstream without SASL makes every client the same principal at the brokers: {how}",
        )
    elif config.gateway.tls_client_ca is not None:
        yield Violation(
            ("upstream.service_user", "gateway.tls_client_ca", *rest),
            f"client certificates are no identity at the brokers, and without SASL there is none: {how}",
        )


def _store_fits_the_workers(config: Config) -> Iterator[Violation]:
    scheme, workers = config.topologies.store.scheme, config.gateway.workers
    if scheme in {"sqlite", "memory"} and workers > 1:
        yield Violation(
            ("topologies.store", "gateway.workers"),
            f"{scheme}: serves one process, and gateway.workers is {workers}: use kafka:, or set gateway.workers = 1",
        )


def _plugin_settings_have_a_plugin(config: Config) -> Iterator[Violation]:
    if config.topologies.plugin and config.topologies.store.scheme != "plugin":
        yield Violation(
            ("topologies.plugin", "topologies.store"),
            f"{config.topologies.store.scheme}: takes no settings: remove them, or set topologies.store to a plugin",
        )


def _clients_can_start(config: Config) -> Iterator[Violation]:
    denied = config.gateway.deny_api_keys & {ApiKey.METADATA, ApiKey.API_VERSIONS}
    if denied:
        yield Violation(
            ("gateway.deny_api_keys",),
            f"no client can start without {' and '.join(map(str, sorted(denied)))} (Metadata is 3, ApiVersions 18): "
            "take it off the list",
        )


def _limits_can_be_reached(config: Config) -> Iterator[Violation]:
    limit = config.gateway.max_connections_per_address
    if limit is not None and limit > config.gateway.max_connections:
        yield Violation(
            ("gateway.max_connections_per_address", "gateway.max_connections"),
            f"is above gateway.max_connections ({config.gateway.max_connections}): lower it, or leave it out",
        )


def _topics_are_apart(config: Config) -> Iterator[Violation]:
    facts, letters = config.facts.prefix, config.share_groups.dlq_prefix
    if facts.startswith(letters) or letters.startswith(facts):
        yield Violation(
            ("share_groups.dlq_prefix", "facts.prefix"),
            "one of facts.prefix and share_groups.dlq_prefix begins with the other: dead letters would mix with facts",
        )


def _connect_clusters_are_distinct(config: Config) -> Iterator[Violation]:
    seen: dict[str, str] = {}
    for name, cluster in config.connect.items():
        path = path_text(("connect", name))
        if not _CONNECT_NAME.fullmatch(name):
            yield Violation(
                (path,), "the name must be 1 to 64 letters, digits, '.', '_' and '-', a letter or digit first"
            )
        other = seen.setdefault(variable_name(name), name)
        if other != name:
            yield Violation(
                (path,), f"has the same variables as connect.{shown(other)} (HEADGATE_CONNECT_...): rename one"
            )
        if cluster.record and not cluster.principals:
            yield Violation(
                (f"{path}.principals", f"{path}.record"),
                "is empty, and any client can claim to be a connector: name the principals of the Connect workers, "
                'such as "User:connect"',
            )
        if cluster.record and not cluster.tracking_enable:
            yield Violation(
                (f"{path}.record", f"{path}.tracking_enable"),
                "nothing is recorded with tracking_enable = false: set it to true, or drop record",
            )
        if cluster.record and not config.activity.enable:
            yield Violation(
                (f"{path}.record", "activity.enable"),
                "nothing is recorded with activity.enable = false: set it to true, or drop record",
            )
        if cluster.status_topic == cluster.config_topic:
            yield Violation(
                (f"{path}.config_topic", f"{path}.status_topic"), "is the status topic too: Connect has one for each"
            )
        if cluster.offset_topic in {cluster.status_topic, cluster.config_topic}:
            yield Violation((f"{path}.offset_topic",), "is the status or config topic too: Connect has one for each")


def _web_has_tokens(config: Config) -> Iterator[Violation]:
    if not is_loopback(config.web.listen.host) and config.web.tokens_file is None:
        yield Violation(
            ("web.tokens_file", "web.listen"),
            "is missing: the REST interface can change data and web.listen accepts other machines: "
            "set it, or listen on 127.0.0.1",
        )


def _parking_is_an_ordinary_topic(config: Config) -> Iterator[Violation]:
    topic = config.replay.parking_topic or ""
    for path, prefix in (
        ("share_groups.dlq_prefix", config.share_groups.dlq_prefix),
        ("facts.prefix", config.facts.prefix),
    ):
        if topic.startswith(prefix):
            yield Violation(
                ("replay.parking_topic", path),
                f"begins with {path}, and dead letters are never written to such a topic: choose another name",
            )


def _storage_is_used(config: Config) -> Iterator[Violation]:
    places = (config.tables.path, config.pipeline.checkpoint)
    options = {name: value for place in places if isinstance(place, ObjectLocation) for name, value in place.options}
    if config.tables.storage and not any(isinstance(place, ObjectLocation) for place in places):
        yield Violation(
            ("tables.storage", "tables.path", "pipeline.checkpoint"),
            "is used only with an object store: set tables.path to s3://BUCKET/PREFIX, or remove this",
        )
    if options.get("AWS_ENDPOINT_URL", "").startswith("http://") and options.get("AWS_ALLOW_HTTP") != "true":
        yield Violation(
            ("tables.storage", "tables.path", "pipeline.checkpoint"),
            "AWS_ENDPOINT_URL is http, so that data would be sent unencrypted: use https, or set AWS_ALLOW_HTTP = true",
        )
    if ("AWS_ACCESS_KEY_ID" in options) != ("AWS_SECRET_ACCESS_KEY" in options):
        yield Violation(
            ("tables.storage", "tables.path", "pipeline.checkpoint"),
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY come together: set both, or none for the role of the machine",
        )


_RULES: tuple[Rule, ...] = (
    _clients_can_connect,
    _node_ports_exist,
    _listeners_do_not_collide,
    _upstream_is_not_the_gateway,
    _tls_files_come_in_pairs,
    _service_account_is_whole,
    _identity_reaches_the_broker,
    _store_fits_the_workers,
    _plugin_settings_have_a_plugin,
    _clients_can_start,
    _limits_can_be_reached,
    _topics_are_apart,
    _connect_clusters_are_distinct,
    _web_has_tokens,
    _parking_is_an_ordinary_topic,
    _storage_is_used,
)
