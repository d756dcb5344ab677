"""The facts as Spark reads them: which topics, and how its Kafka source logs in.

One rule: the same `[upstream]` and `[facts]` as everything else. A topic that is not there yet is found when it comes,
because topics are subscribed to by a pattern that only they match.
"""

import re
from collections.abc import Mapping

from headgate.config.files import read_secret
from headgate.config.model import Config, Upstream

# The small topics. Activity and dispositions are large and go another way.
SUFFIXES = ("events", "state", "topologies")
_MODULES = {"PLAIN": "plain.PlainLoginModule"}
_SCRAM_MODULE = "scram.ScramLoginModule"


def topics(prefix: str) -> tuple[str, ...]:
    return tuple(prefix + suffix for suffix in SUFFIXES)


def read_options(config: Config) -> dict[str, str]:
    """For `format("kafka")`, streaming or not: everything that is retained, from the start."""
    pattern = f"{re.escape(config.facts.prefix)}({'|'.join(SUFFIXES)})"
    return {
        "subscribePattern": pattern,
        "startingOffsets": "earliest",
        # Retention is no failure: what is gone is gone, and the tables keep what was made of it.
        "failOnDataLoss": "false",
        "groupIdPrefix": "headgate-pipeline",
        **{f"kafka.{name}": value for name, value in _client(config.upstream).items()},
    }


def _client(upstream: Upstream) -> Mapping[str, str]:
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
