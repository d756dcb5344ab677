"""Computes how many librdkafka clients, threads and file descriptors a worker has at most (limits, `headgate doctor`).

The clients are those of the table in `docs/architecture.md`, and a test counts them in a running worker. The formulas
were measured with one and three brokers: every client has a thread for each broker, its main thread and one for its
internal broker, and one more for a coordinator or for callbacks; each of the brokers' threads has a pipe, and a socket
when it is connected.
"""

from typing import Final

from headgate.config.model import Config

_SHARED: Final = 4  # AdminClient, two consumers, producer of facts
_SHARE_GROUPS: Final = 4  # dead letters, two of the spool, leadership
_LEADER: Final = 2  # trips, reader of the spool
_LAG_LEADER: Final = 1  # leadership of worker 0, without share groups
_RESTORING: Final = 1  # worker 0, for a moment after a start, without share groups
_PYTHON_THREADS: Final = 64  # measured were 12; blocking work adds up to 32 and what waits for the cluster
SUPERVISOR_THREADS: Final = 16


def most_clients(config: Config) -> int:
    """The clients of the worker that has the most: the leader."""
    lags = config.lags.enable
    features = config.share_groups.enable or config.activity.enable or lags or config.topologies.owner == "gateway"
    connect = config.activity.enable and any(one.record for one in config.connect.values())
    share_groups = _SHARE_GROUPS + _LEADER if config.share_groups.enable else _RESTORING + _LAG_LEADER * lags
    return _SHARED * features + share_groups + connect


def most_threads(config: Config, *, brokers: int) -> int:
    """The threads of that worker."""
    return most_clients(config) * (brokers + 3) + _PYTHON_THREADS


def most_tasks(config: Config, *, brokers: int) -> int:
    """The threads of all workers, of one more while workers are replaced, and of the supervisor."""
    return (config.gateway.workers + 1) * most_threads(config, brokers=brokers) + SUPERVISOR_THREADS


def client_descriptors(config: Config, *, brokers: int) -> int:
    """The file descriptors of that worker's clients."""
    return most_clients(config) * (3 * brokers + 5)
