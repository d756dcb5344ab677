"""The messages between the web server and a replay process: JSON lines over two pipes.

The first line to the process is the job, which has the operator's password: it is on no command line, in no environment
and in no file. Further lines are commands. The end of the pipe is the end of the web server, and stops the replay.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from headgate.base.locations import Location, ObjectLocation, parse_location
from headgate.config.addresses import parse_address
from headgate.config.storage import located
from headgate.dead_letters.model.plans import ReplayRules
from headgate.dead_letters.model.target_limits import TimestampMode
from headgate.kafka.connections import Credentials
from headgate.web.operations import GatewayAccess

MAX_LINE: Final = 256 * 1024
# Of `ReplayResult`, in reports.
RESULT_FIELDS: Final = ("state", "written", "parked", "skipped", "reasons", "stopped_by")
SERVER_ENDED: Final = "the web server ended"


class ReplayKind(StrEnum):
    REPLAY = "replay"
    DRY_RUN = "dry_run"
    ABORT = "abort"


class ReplayCommand(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """One run of a plan; without `credentials` there is no SASL."""

    plan: str
    kind: ReplayKind
    rate: float | None
    timestamps: TimestampMode
    by: str
    tables: Location  # with the options of an object store
    rules: ReplayRules
    gateway: GatewayAccess
    credentials: Credentials | None

    def encode(self) -> bytes:
        gateway = asdict(self.gateway) | {"address": str(self.gateway.address)}
        options = self.tables.options if isinstance(self.tables, ObjectLocation) else ()
        tables = {"tables": str(self.tables), "storage": dict(options)}
        return json.dumps(asdict(self) | tables | {"gateway": gateway}).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> "ReplayJob":
        document = json.loads(line)
        parts = ("rules", "gateway", "credentials", "storage")
        rules, gateway, login, storage = (document.pop(name) for name in parts)
        tables = located(parse_location(document["tables"]), tuple(sorted(storage.items())))
        rules["topics"] = tuple(rules["topics"])
        return cls(
            **document | {"kind": ReplayKind(document["kind"]), "tables": tables},
            rules=ReplayRules(**rules),
            gateway=GatewayAccess(**gateway | {"address": parse_address(gateway["address"])}),
            credentials=None if login is None else Credentials(**login),
        )


def client_settings_of(gateway: GatewayAccess, credentials: Credentials | None) -> Mapping[str, Any]:
    """The settings of a librdkafka client that acts as the operator."""
    has_sasl = credentials is not None
    settings: dict[str, Any] = {
        "bootstrap.servers": str(gateway.address),
        "security.protocol": ("SASL_" if has_sasl else "") + ("SSL" if gateway.has_tls else "PLAINTEXT"),
    }
    if gateway.has_tls and gateway.tls_ca is not None:
        settings["ssl.ca.location"] = gateway.tls_ca
    if credentials is not None:
        settings |= {
            "sasl.mechanism": credentials.mechanism,
            "sasl.username": credentials.user,
            "sasl.password": credentials.password,
        }
    return settings
