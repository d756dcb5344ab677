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
    config.connect["prod"].status_topic   Mapping[str, ConnectConfig], in the file's order

Times in `*_ms` keys are whole milliseconds, sizes in `*_bytes` keys are bytes, and an absent file is None.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from headgate.base.ids import NodeId
from headgate.config import values
from headgate.config.addresses import Address, parse_address, parse_host, parse_nodes
from headgate.config.values import FrozenMap, GroupPatterns, PluginSetting, Store

MIB = 1024 * 1024
HOUR_MS = 3_600_000
INT32_MAX = 2**31 - 1

Text = Annotated[str, Field(strict=True, min_length=1)]
Switch = Annotated[bool, Field(strict=True)]
AnAddress = Annotated[Address, PlainValidator(parse_address)]
AHost = Annotated[str, Field(strict=True), AfterValidator(parse_host)]
APath = Annotated[Path, PlainValidator(values.parse_path)]
ATopic = Annotated[str, Field(strict=True), AfterValidator(values.topic_name)]
Groups = Annotated[GroupPatterns, PlainValidator(values.parse_group_patterns)]
ConnectionLimit = Annotated[
    Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None, BeforeValidator(values.off_is_none)
]
AnApiKey = Annotated[int, Field(strict=True, ge=0, le=2**15 - 1)]


class ConfigSection(BaseModel):
    """The base of all sections: they are immutable, and an unknown key is an error."""

    # Pydantic's own error texts would show what was given, and that may be a secret.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class GatewayConfig(ConfigSection):
    """`[gateway]`: the listeners for clients, and the limits of a client."""

    listen: AnAddress = Address("127.0.0.1", 9092)
    advertised_host: AHost = Field(default_factory=lambda data: data["listen"].host)
    nodes: Annotated[tuple[NodeId, ...], PlainValidator(parse_nodes)] = (NodeId(0), NodeId(1), NodeId(2))
    workers: Annotated[int, Field(strict=True, ge=1, le=256)] = 1
    max_frame_bytes: Annotated[int, Field(strict=True, ge=1024, le=INT32_MAX)] = 100 * MIB
    max_connections: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 10_000
    max_connections_per_address: ConnectionLimit = None
    max_unproved_connections: ConnectionLimit = 5_000
    max_unproved_connections_per_address: ConnectionLimit = 2_500
    first_request_ms: Annotated[int, Field(strict=True, ge=100, le=HOUR_MS)] = 10_000
    idle_ms: Annotated[int, Field(strict=True, ge=100, le=24 * HOUR_MS)] = 600_000
    connect_timeout_ms: Annotated[int, Field(strict=True, ge=10, le=600_000)] = 10_000
    drain_ms: Annotated[int, Field(strict=True, ge=0, le=HOUR_MS)] = 10_000
    tls_cert: APath | None = None
    tls_key: APath | None = None
    tls_client_ca: APath | None = None
    proxy_protocol: Switch = False
    deny_api_keys: frozenset[AnApiKey] = frozenset()

    def node_address(self, node: NodeId) -> Address:
        """Where the gateway listens for this node (DESIGN, "Address map")."""
        return Address(self.listen.host, self.listen.port + 1 + node)

    def addresses(self) -> tuple[Address, ...]:
        """Every address that the gateway listens on: bootstrap first, then the nodes."""
        return (self.listen, *(self.node_address(node) for node in self.nodes))


class UpstreamConfig(ConfigSection):
    """`[upstream]`: the real cluster, and the service account for Headgate's own topics.

    `service_mechanism = "none"` states that the cluster has no SASL and that the operator knows it (see `rules.py`).
    The password itself is not held here: `files.read_secret` reads it when it is needed.
    """

    bootstrap: Annotated[tuple[AnAddress, ...], Field(min_length=1, max_length=100)] = (Address("127.0.0.1", 19092),)
    tls: Switch = False
    tls_ca: APath | None = None
    service_user: Text | None = None
    service_password_file: APath | None = None
    service_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "none"] = "SCRAM-SHA-512"


class FactsConfig(ConfigSection):
    """`[facts]`: Headgate's own topics. `replication` None means min(3, brokers)."""

    prefix: Annotated[str, Field(strict=True), AfterValidator(values.topic_prefix(32))] = "headgate."
    replication: Annotated[
        Annotated[int, Field(strict=True, ge=1, le=32)] | None, BeforeValidator(values.auto_is_none)
    ] = None


class TopologiesConfig(ConfigSection):
    """`[topologies]`: KIP-1331. `max_bytes` bounds one pushed description on the wire."""

    owner: Literal["gateway", "broker", "off"] = "gateway"
    store: Annotated[Store, PlainValidator(values.parse_store)] = Store("kafka")
    # A fact in JSON can be eleven times the pushed bytes (facts/topics.py), and a broker takes 100 MiB a request.
    max_bytes: Annotated[int, Field(strict=True, ge=1024, le=8 * MIB)] = 4 * MIB
    call_timeout_ms: Annotated[int, Field(strict=True, ge=10, le=30_000)] = 5_000
    # offsets.retention.check.interval.ms as brokers ship it: no group expires sooner.
    cleanup_interval_ms: Annotated[int, Field(strict=True, ge=1_000, le=86_400_000)] = 600_000
    groups: Groups = GroupPatterns()
    plugin: Annotated[Mapping[str, PluginSetting], PlainValidator(values.parse_plugin_settings)] = FrozenMap({})


class ShareGroupsConfig(ConfigSection):
    """`[share_groups]`: dead letters and the circuit breaker of KIP-1316."""

    enable: Switch = True
    pause_enable: Switch = True
    dlq_prefix: Annotated[str, Field(strict=True), AfterValidator(values.topic_prefix(1))] = "dlq."
    dlq_auto_create: Switch = False
    # The wait of a client's request for its dead-letter topic; after that the dead letter goes to the spool.
    hold_max_ms: Annotated[int, Field(strict=True, ge=10, le=5_000)] = 250
    groups: Groups = GroupPatterns()


class ActivityConfig(ConfigSection):
    """`[activity]`: which topics every client uses."""

    enable: Switch = True


class ConnectConfig(ConfigSection):
    """`[connect.NAME]`: one Connect cluster (KIP-558)."""

    status_topic: ATopic = "connect-status"
    config_topic: ATopic = "connect-configs"
    record: Switch = False
    principals: tuple[Text, ...] = ()
    tracking_enable: Switch = True
    tracking_allow_reset: Switch = True


class TablesConfig(ConfigSection):
    """`[tables]`: the folder of the Delta tables."""

    path: APath = Path(".headgate/tables")


class PipelineConfig(ConfigSection):
    """`[pipeline]`: the Spark jobs. `spark` may hold credentials of an object store, so it is not shown."""

    checkpoint: APath = Path(".headgate/checkpoints")
    trigger_ms: Annotated[int, Field(strict=True, ge=100, le=HOUR_MS)] = 2_000
    spark: Annotated[Mapping[str, str], BeforeValidator(values.flat_settings), AfterValidator(FrozenMap)] = Field(
        default=FrozenMap({}), repr=False
    )


class WebConfig(ConfigSection):
    """`[web]`: the REST interface."""

    listen: AnAddress = Address("127.0.0.1", 8080)
    allowed_hosts: Annotated[tuple[AHost, ...], Field(min_length=1)] = ("localhost", "127.0.0.1", "::1")
    tokens_file: APath | None = None
    tls_cert: APath | None = None
    tls_key: APath | None = None


class MetricsConfig(ConfigSection):
    """`[metrics]`: `/metrics`, `/healthz` and `/readyz` of the gateway."""

    listen: AnAddress = Address("127.0.0.1", 9404)


class Config(ConfigSection):
    """The whole configuration; every section has a default, so an empty file is valid."""

    gateway: GatewayConfig = GatewayConfig()
    upstream: UpstreamConfig = UpstreamConfig()
    facts: FactsConfig = FactsConfig()
    topologies: TopologiesConfig = TopologiesConfig()
    share_groups: ShareGroupsConfig = ShareGroupsConfig()
    activity: ActivityConfig = ActivityConfig()
    connect: Annotated[Mapping[str, ConnectConfig], AfterValidator(FrozenMap)] = FrozenMap({})
    tables: TablesConfig = TablesConfig()
    pipeline: PipelineConfig = PipelineConfig()
    web: WebConfig = WebConfig()
    metrics: MetricsConfig = MetricsConfig()
