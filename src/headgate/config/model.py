"""The whole configuration as one frozen value; `docs/configuration.md` is its table for operators.

A section here declares each key by itself. Checks over several keys are in `rules.py`; `loading.py` finds the values.
Nothing here reads a file, the environment or a clock.

The shape, for users of `config = load(...)`:

    config.gateway.listen                 Address(host, port), also unpacks: `host, port = config.gateway.listen`
    config.gateway.nodes                  tuple[NodeId, ...], ascending; node i listens on listen.port + 1 + i
    config.gateway.node_address(node)     that Address; config.gateway.addresses() is all of them
    config.upstream.bootstrap             tuple[Address, ...]
    config.topologies.store               Store(scheme, target)
    config.topologies.groups              GroupPatterns, with .matches(name)
    config.tables.path                    Path, or ObjectLocation for s3://..., which carries the store's options
    config.connect["prod"].status_topic   Mapping[str, ConnectConfig], in the file's order

Times in `*_ms` keys are whole milliseconds, sizes in `*_bytes` keys are bytes, and an absent file is None.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from headgate.base.ids import NodeId
from headgate.base.locations import Location, parse_location
from headgate.config import values
from headgate.config.addresses import Address, parse_address, parse_host, parse_nodes
from headgate.config.keys import ConfigText, ListOf, WholeNumber, WordOr
from headgate.config.values import FrozenMap, GroupPatterns, PluginSetting, Store

MIB = 1024 * 1024
HOUR_MS = 3_600_000
INT32_MAX = 2**31 - 1

AnAddress = Annotated[Address, parse_address]
ALocation = Annotated[Location, parse_location]
AFile = Annotated[Path | None, values.parse_path]
ATopic = Annotated[str, ConfigText(values.topic_name)]
Groups = Annotated[GroupPatterns, values.parse_group_patterns]
ConnectionLimit = Annotated[int | None, WordOr("off", WholeNumber(1, 1_000_000))]


class ConfigSection:
    """The base of all sections, which are immutable. A value is not checked when a section is created: `load` does."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig(ConfigSection):
    """`[gateway]`: the listeners for clients, and the limits of a client."""

    listen: AnAddress = Address("127.0.0.1", 9092)
    advertised_host: Annotated[str, ConfigText(parse_host)] = ""  # that of `listen`
    nodes: Annotated[tuple[NodeId, ...], parse_nodes] = (NodeId(0), NodeId(1), NodeId(2))
    workers: Annotated[int, WholeNumber(1, 256)] = 1
    max_frame_bytes: Annotated[int, WholeNumber(1024, INT32_MAX)] = 100 * MIB
    max_connections: Annotated[int, WholeNumber(1, 1_000_000)] = 10_000
    max_connections_per_address: ConnectionLimit = None
    max_unproved_connections: ConnectionLimit = 5_000
    max_unproved_connections_per_address: ConnectionLimit = 2_500
    first_request_ms: Annotated[int, WholeNumber(100, HOUR_MS)] = 10_000
    idle_ms: Annotated[int, WholeNumber(100, 24 * HOUR_MS)] = 600_000
    connect_timeout_ms: Annotated[int, WholeNumber(10, 600_000)] = 10_000
    drain_ms: Annotated[int, WholeNumber(0, HOUR_MS)] = 10_000
    tls_cert: AFile = None
    tls_key: AFile = None
    tls_client_ca: AFile = None
    proxy_protocol: bool = False
    deny_api_keys: Annotated[frozenset[int], ListOf(WholeNumber(0, 2**15 - 1), frozenset)] = frozenset()

    def __post_init__(self) -> None:
        if not self.advertised_host:
            object.__setattr__(self, "advertised_host", self.listen.host)

    def node_address(self, node: NodeId) -> Address:
        """Where the gateway listens for this node (DESIGN, "Address map")."""
        return Address(self.listen.host, self.listen.port + 1 + node)

    def addresses(self) -> tuple[Address, ...]:
        """Every address that the gateway listens on: bootstrap first, then the nodes."""
        return (self.listen, *(self.node_address(node) for node in self.nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamConfig(ConfigSection):
    """`[upstream]`: the real cluster, and the service account for Headgate's own topics.

    `service_mechanism = "none"` states that the cluster has no SASL and that the operator knows it (see `rules.py`).
    The password itself is not held here: `files.read_secret` reads it when it is needed.
    """

    bootstrap: Annotated[tuple[Address, ...], ListOf(parse_address, at_least=1, at_most=100)] = (
        Address("127.0.0.1", 19092),
    )
    tls: bool = False
    tls_ca: AFile = None
    service_user: Annotated[str | None, ConfigText()] = None
    service_password_file: AFile = None
    service_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "none"] = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsConfig(ConfigSection):
    """`[facts]`: Headgate's own topics. `replication` None means min(3, brokers)."""

    prefix: Annotated[str, ConfigText(values.topic_prefix(32))] = "headgate."
    replication: Annotated[int | None, WordOr("auto", WholeNumber(1, 32))] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologiesConfig(ConfigSection):
    """`[topologies]`: KIP-1331. `max_bytes` bounds one pushed description on the wire."""

    owner: Literal["gateway", "broker", "off"] = "gateway"
    store: Annotated[Store, values.parse_store] = Store("kafka")
    # A fact in JSON can be eleven times the pushed bytes (facts/topics.py), and a broker takes 100 MiB a request.
    max_bytes: Annotated[int, WholeNumber(1024, 8 * MIB)] = 4 * MIB
    call_timeout_ms: Annotated[int, WholeNumber(10, 30_000)] = 5_000
    # offsets.retention.check.interval.ms as brokers ship it: no group expires sooner.
    cleanup_interval_ms: Annotated[int, WholeNumber(1_000, 86_400_000)] = 600_000
    # A pipeline that is stopped for less than this still reads the deletion.
    deleted_retention_ms: Annotated[int, WholeNumber(1_000, 315_360_000_000)] = 604_800_000
    versions_kept: Annotated[int, WholeNumber(1, 100_000)] = 100
    groups: Groups = GroupPatterns()
    plugin: Annotated[Mapping[str, PluginSetting], values.parse_plugin_settings] = FrozenMap({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupsConfig(ConfigSection):
    """`[share_groups]`: dead letters and the circuit breaker of KIP-1316."""

    enable: bool = True
    pause_enable: bool = True
    dlq_prefix: Annotated[str, ConfigText(values.topic_prefix(1))] = "dlq."
    dlq_auto_create: bool = False
    # The wait of a client's request for its dead-letter topic; after that the dead letter goes to the spool.
    hold_max_ms: Annotated[int, WholeNumber(10, 5_000)] = 250
    groups: Groups = GroupPatterns()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityConfig(ConfigSection):
    """`[activity]`: which topics every client uses."""

    enable: bool = True
    # Read by the pipeline. Hours are what it adds uses up by, and a year of silence is no use any more.
    quiet_after_ms: Annotated[int, WholeNumber(HOUR_MS, 366 * 24 * HOUR_MS)] = 7 * 24 * HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LagsConfig(ConfigSection):
    """`[lags]`: how far every group is behind."""

    enable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectConfig(ConfigSection):
    """`[connect.NAME]`: one Connect cluster (KIP-558)."""

    status_topic: ATopic = "connect-status"
    config_topic: ATopic = "connect-configs"
    offset_topic: ATopic = "connect-offsets"  # only known to be internal
    record: bool = False
    principals: Annotated[tuple[str, ...], ListOf(ConfigText())] = ()
    tracking_enable: bool = True
    tracking_allow_reset: bool = True

    @property
    def own_topics(self) -> tuple[str, str, str]:
        """What Connect itself keeps there."""
        return self.status_topic, self.config_topic, self.offset_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesConfig(ConfigSection):
    """`[tables]`: where the Delta tables are. `storage` holds credentials of an object store, so it is not shown."""

    path: ALocation = Path(".headgate/tables")
    storage: Annotated[Mapping[str, str], values.parse_storage] = field(default=FrozenMap({}), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig(ConfigSection):
    """`[pipeline]`: the Spark jobs. `spark` may hold credentials of an object store, so it is not shown."""

    checkpoint: ALocation = Path(".headgate/checkpoints")
    trigger_ms: Annotated[int, WholeNumber(100, HOUR_MS)] = 2_000
    spark: Annotated[Mapping[str, str], values.flat_settings] = field(default=FrozenMap({}), repr=False)
    openlineage: AFile = None
    openlineage_namespace: Annotated[str | None, ConfigText(values.dataset_namespace)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayConfig(ConfigSection):
    """`[replay]`: where dead letters may be replayed to. Without `topics`, nowhere."""

    topics: Annotated[tuple[str, ...], ListOf(ConfigText(values.topic_pattern), at_most=1000)] = ()
    max_replays: Annotated[int, WholeNumber(1, 10)] = 3
    parking_topic: Annotated[str | None, ConfigText(values.topic_name)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig(ConfigSection):
    """`[web]`: the REST interface, and the gateway through which it pauses and resumes share groups."""

    listen: AnAddress = Address("127.0.0.1", 8080)
    allowed_hosts: Annotated[tuple[str, ...], ListOf(ConfigText(parse_host), at_least=1)] = (
        "localhost",
        "127.0.0.1",
        "::1",
    )
    tokens_file: AFile = None
    tls_cert: AFile = None
    tls_key: AFile = None
    gateway: Annotated[Address | None, parse_address] = None  # by default `gateway.listen`
    gateway_tls_ca: AFile = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig(ConfigSection):
    """`[metrics]`: `/metrics`, `/healthz` and `/readyz` of the gateway."""

    listen: AnAddress = Address("127.0.0.1", 9404)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ConfigSection):
    """The whole configuration; every section has a default, so an empty file is valid."""

    gateway: GatewayConfig = GatewayConfig()
    upstream: UpstreamConfig = UpstreamConfig()
    facts: FactsConfig = FactsConfig()
    topologies: TopologiesConfig = TopologiesConfig()
    share_groups: ShareGroupsConfig = ShareGroupsConfig()
    activity: ActivityConfig = ActivityConfig()
    lags: LagsConfig = LagsConfig()
    connect: Mapping[str, ConnectConfig] = FrozenMap({})
    tables: TablesConfig = TablesConfig()
    pipeline: PipelineConfig = PipelineConfig()
    replay: ReplayConfig = ReplayConfig()
    web: WebConfig = WebConfig()
    metrics: MetricsConfig = MetricsConfig()
