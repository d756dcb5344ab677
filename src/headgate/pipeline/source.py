"""The facts as Spark reads them: which topics, and how its Kafka source logs in.

One rule: the same `[upstream]` and `[facts]` as everything else. A topic that is not there yet is found when it comes,
because topics are subscribed to by a pattern that only they match.
"""

import re
from collections.abc import Mapping

from headgate.config.files import read_secret
from headgate.config.model import Config, UpstreamConfig
from headgate.pipeline.queries import Query

_MODULES = {"PLAIN": "plain.PlainLoginModule"}
_SCRAM_MODULE = "scram.ScramLoginModule"


def read_options(config: Config, query: Query) -> dict[str, str]:
    """For `format("kafka")`: everything that is retained, from the start, so much at a time."""
    pattern = f"{re.escape(config.facts.prefix)}({'|'.join(query.suffixes)})"
    return {
        "maxOffsetsPerTrigger": str(query.most_offsets),
        "subscribePattern": pattern,
        "startingOffsets": "earliest",
        # Retention is no failure: what is gone is gone, and the tables keep what was made of it.
        "failOnDataLoss": "false",
        "groupIdPrefix": "headgate-pipeline",
        # Only what is known to be there is read. A consumer that asks for more in advance would wait half a second for
        # it before it can read on somewhere else, once for each partition.
        "kafka.fetch.max.wait.ms": "10",
        **{f"kafka.{name}": value for name, value in _client(config.upstream).items()},
    }


def _client(upstream: UpstreamConfig) -> Mapping[str, str]:
    """As Java clients are told it; a truststore of PEM is what `tls_ca` is."""
    has_sasl = upstream.service_user is not None and upstream.service_mechanism != "none"
    settings = {
        "bootstrap.servers": ",".join(map(str, upstream.bootstrap)),
        "security.protocol": ("SASL_" if has_sasl else "") + ("SSL" if upstream.tls else "PLAINTEXT"),
    }
    if upstream.tls_ca is not None:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(upstream.tls_ca)}
    if has_sasl and upstream.service_password_file is not None:
        mechanism = upstream.service_mechanism
        module = f"org.apache.kafka.common.security.{_MODULES.get(mechanism, _SCRAM_MODULE)}"
        user = _quoted(upstream.service_user or "")
        password = _quoted(read_secret(upstream.service_password_file).get_secret_value())
        settings |= {
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{module} required username={user} password={password};",
        }
    return settings


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
