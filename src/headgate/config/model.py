"""The whole configuration as one frozen value; `docs/configuration.md` is its table for operators.

One rule: a section here says what each key is by itself. What keys say together is `rules.py`, where the values come
from is `loading.py`. Nothing here reads a file, the environment or a clock.

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
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from headgate.base.ids import ApiKey, NodeId
from headgate.config import values
from headgate.config.addresses import Address, parse_address, parse_host, parse_nodes
from headgate.config.values import FrozenMap, GroupPatterns, Store

MIB = 1024 * 1024
HOUR_MS = 3_600_000
INT32_MAX = 2**31 - 1

Text = Annotated[str, Field(strict=True, min_length=1)]
Switch = Annotated[bool, Field(strict=True)]
AnAddress = Annotated[Address, PlainValidator(parse_address)]
AHost = Annotated[str, Field(strict=True), AfterValidator(parse_host)]
APath = Annotated[Path, PlainValidator(values.parse_path)]
ATopic = Annotated[str, Field(strict=True), AfterValidator(values.topic_name)]
AUrl = Annotated[str, Field(strict=True), AfterValidator(values.http_url)]
Groups = Annotated[GroupPatterns, PlainValidator(values.parse_group_patterns)]
AnApiKey = Annotated[ApiKey, Field(strict=True, ge=0, le=2**15 - 1)]


class Section(BaseModel):
    """What all sections share: nobody changes them, and a key that they do not have is an error."""

    # Pydantic's own error texts would show what was given, and that may be a secret.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class GatewayConfig(Section):
    """`[gateway]`: the listeners that clients dial, and what one client may take."""

    listen: AnAddress = Address("127.0.0.1", 9092)
    advertised_host: AHost = Field(default_factory=lambda data: data["listen"].host)
    nodes: Annotated[tuple[NodeId, ...], PlainValidator(parse_nodes)] = (NodeId(0), NodeId(1), NodeId(2))
    workers: Annotated[int, Field(strict=True, ge=1, le=256)] = 1
    max_frame_bytes: Annotated[int, Field(strict=True, ge=1024, le=INT32_MAX)] = 100 * MIB
    max_connections: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 10_000
    max_connections_per_address: Annotated[
        Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None, BeforeValidator(values.off_is_none)
    ] = None
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


class UpstreamConfig(Section):
    """`[upstream]`: the real cluster, and the service account for Headgate's own topics.

    `service_mechanism = "none"` says that the operator knows that this cluster has no SASL (see `rules.py`).
    The password itself is not held here: `files.read_secret` reads it when it is needed.
    """

    bootstrap: Annotated[tuple[AnAddress, ...], Field(min_length=1, max_length=100)] = (Address("127.0.0.1", 19092),)
    tls: Switch = False
    tls_ca: APath | None = None
    service_user: Text | None = None
    service_password_file: APath | None = None
    service_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "none"] = "SCRAM-SHA-512"


class FactsConfig(Section):
    """`[facts]`: Headgate's own topics. `replication` None means min(3, brokers)."""

    prefix: Annotated[str, Field(strict=True), AfterValidator(values.topic_prefix(32))] = "headgate."
    replication: Annotated[
        Annotated[int, Field(strict=True, ge=1, le=32)] | None, BeforeValidator(values.auto_is_none)
    ] = None


class TopologiesConfig(Section):
    """`[topologies]`: KIP-1331. `max_bytes` bounds one pushed description on the wire."""

    owner: Literal["gateway", "broker", "off"] = "gateway"
    store: Annotated[Store, PlainValidator(values.parse_store)] = Store("kafka")
    # A fact in JSON can be eleven times the pushed bytes (facts/topics.py), and a broker takes 100 MiB a request.
    max_bytes: Annotated[int, Field(strict=True, ge=1024, le=8 * MIB)] = 4 * MIB
    call_timeout_ms: Annotated[int, Field(strict=True, ge=10, le=30_000)] = 5_000
    groups: Groups = GroupPatterns()


class ShareGroupsConfig(Section):
    """`[share_groups]`: dead letters and the circuit breaker of KIP-1316."""

    enable: Switch = True
    pause_enable: Switch = True
    dlq_prefix: Annotated[str, Field(strict=True), AfterValidator(values.topic_prefix(1))] = "dlq."
    dlq_auto_create: Switch = False
    # At 30 s clients' request timeouts and locks end, and everything in the held request is delivered again.
    hold_max_ms: Annotated[int, Field(strict=True, ge=0, le=25_000)] = 10_000
    groups: Groups = GroupPatterns()


class ActivityConfig(Section):
    """`[activity]`: which topics every client uses. A declared topic unused for `quiet_after` counts as silent."""

    enable: Switch = True
    quiet_after: Annotated[timedelta, PlainValidator(values.parse_duration)] = timedelta(days=7)


class ConnectConfig(Section):
    """`[connect.NAME]`: one Connect cluster (KIP-558)."""

    rest_urls: Annotated[tuple[AUrl, ...], Field(max_length=100)] = ()
    status_topic: ATopic = "connect-status"
    config_topic: ATopic = "connect-configs"
    record: Switch = False
    principals: tuple[Text, ...] = ()
    tracking_enable: Switch = True
    tracking_allow_reset: Switch = True


class TablesConfig(Section):
    """`[tables]`: the folder of the Delta tables."""

    path: APath = Path(".headgate/tables")


class PipelineConfig(Section):
    """`[pipeline]`: the Spark jobs. `spark` may hold credentials of an object store, so it is not shown."""

    checkpoint: APath = Path(".headgate/checkpoints")
    trigger_ms: Annotated[int, Field(strict=True, ge=100, le=HOUR_MS)] = 2_000
    spark: Annotated[Mapping[str, str], BeforeValidator(values.flat_settings), AfterValidator(FrozenMap)] = Field(
        default=FrozenMap({}), repr=False
    )


class Replay(Section):
    """`[replay]`: which dead-letter topics may be put back, and where a record goes that keeps coming back."""

    topics: tuple[Text, ...] = ("dlq.*",)
    max_replays: Annotated[int, Field(strict=True, ge=1, le=1000)] = 3
    parking_topic: ATopic = "parked.dead-letters"


class WebConfig(Section):
    """`[web]`: the page and the REST interface."""

    listen: AnAddress = Address("127.0.0.1", 8080)
    allowed_hosts: Annotated[tuple[AHost, ...], Field(min_length=1)] = ("localhost", "127.0.0.1", "::1")
    tokens_file: APath | None = None
    tls_cert: APath | None = None
    tls_key: APath | None = None
    openlineage: AUrl | None = None


class MetricsConfig(Section):
    """`[metrics]`: `/metrics`, `/healthz` and `/readyz` of the gateway."""

    listen: AnAddress = Address("127.0.0.1", 9404)


class Config(Section):
    """All of it; every section has a default, so an empty file is a configuration."""

    gateway: GatewayConfig = GatewayConfig()
    upstream: UpstreamConfig = UpstreamConfig()
    facts: FactsConfig = FactsConfig()
    topologies: TopologiesConfig = TopologiesConfig()
    share_groups: ShareGroupsConfig = ShareGroupsConfig()
    activity: ActivityConfig = ActivityConfig()
    connect: Annotated[Mapping[str, ConnectConfig], AfterValidator(FrozenMap)] = FrozenMap({})
    tables: TablesConfig = TablesConfig()
    pipeline: PipelineConfig = PipelineConfig()
    replay: Replay = Replay()
    web: WebConfig = WebConfig()
    metrics: MetricsConfig = MetricsConfig()
