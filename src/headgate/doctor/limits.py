"""Checks the limits of file descriptors, threads and pipes that this process has against what the gateway can need.

The limits of a shell are often not those of the unit or the container that will run the gateway, so a limit that is too
low is a warning.
"""

import resource
from collections.abc import Iterator
from pathlib import Path

from headgate.base.pipe_limits import MOST_PIPES, PIPE_BYTES, pipe_limit, user_pages_for
from headgate.config.model import Config
from headgate.doctor.findings import Check, DoctorFinding, ok, warning
from headgate.kafka.client_counts import client_descriptors, most_clients, most_tasks

# Descriptors of a worker beside its clients: status pages, reports, shared memory, logs, its own connections, pipes.
_SPARE_DESCRIPTORS = 64 + 2 * MOST_PIPES
_ENOUGH_PIPES = 4  # of a worker: only slow clients hold one for long
_UNLIMITED = resource.RLIM_INFINITY
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def examine(config: Config) -> Iterator[DoctorFinding]:
    yield descriptors(config, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield threads(config, processes=resource.getrlimit(resource.RLIMIT_NPROC)[0], tasks=pids_max())
    yield pipes(config, pipe_limit(config.gateway.workers))


def descriptors_needed(config: Config) -> int:
    """The most that one worker can need: all clients may connect to the same one."""
    return 2 * config.gateway.max_connections + _own_descriptors(config)


def _own_descriptors(config: Config) -> int:
    nodes = len(config.gateway.nodes)
    return nodes + _SPARE_DESCRIPTORS + client_descriptors(config, brokers=nodes)


def descriptors(config: Config, limit: int) -> DoctorFinding:
    """Two for each client, because of the connection to the broker; `limit` is the soft limit of this process."""
    needed = descriptors_needed(config)
    subject = "file descriptors"
    if limit == _UNLIMITED or limit >= needed:
        allowed = "without limit" if limit == _UNLIMITED else f"{limit} here"
        return ok(Check.MACHINE, subject, f"{needed} are enough for gateway.max_connections, and there are {allowed}")
    text = (
        f"{limit} are allowed in this shell, and gateway.max_connections = {config.gateway.max_connections} can need "
        f"{needed} in one worker: beyond that clients are not accepted"
    )
    fits = max(1, (limit - _own_descriptors(config)) // 2)
    mend = f"LimitNOFILE={needed} in the systemd unit (or: ulimit -n {needed}), or gateway.max_connections = {fits}"
    return warning(Check.MACHINE, subject, text, mend=mend)


def threads(config: Config, *, processes: int, tasks: int | None) -> DoctorFinding:
    """`processes` is the soft limit of this user, which counts threads; `tasks` that of the control group."""
    nodes, workers = len(config.gateway.nodes), config.gateway.workers
    needed = most_tasks(config, brokers=nodes)
    subject = "threads"
    limits = {
        "processes of this user (ulimit -u)": None if processes == _UNLIMITED else processes,
        "tasks of this control group (pids.max)": tasks,
    }
    low = {name: limit for name, limit in limits.items() if limit is not None and limit < needed}
    if not low:
        return ok(Check.MACHINE, subject, f"{needed} are enough for gateway.workers = {workers}, and they are allowed")
    allowed = " and ".join(f"{limit} {name}" for name, limit in low.items())
    text = (
        f"{allowed} are allowed here, and gateway.workers = {workers} with {most_clients(config)} Kafka clients each "
        f"for {nodes} brokers can need {needed} threads: beyond that workers fail"
    )
    mend = f"TasksMax={needed} and LimitNPROC=infinity in the systemd unit, --pids-limit {needed} for a container"
    return warning(Check.MACHINE, subject, text, mend=mend)


def pipes(config: Config, limit: int) -> DoctorFinding:
    """Without pipes large responses are copied; `limit` is how many a worker may have here."""
    subject = "pipes"
    if config.gateway.tls_cert is not None or config.upstream.tls:
        return ok(Check.MACHINE, subject, "not used with TLS")
    if limit >= _ENOUGH_PIPES:
        return ok(Check.MACHINE, subject, f"{limit} for the large responses of each worker")
    workers = config.gateway.workers
    text = f"the kernel allows {limit} for each of {workers} workers: large responses are copied, which costs more CPU"
    mend = (
        f"sysctl -w fs.pipe-user-pages-soft={user_pages_for(_ENOUGH_PIPES, workers)} "
        f"fs.pipe-max-size={max(1024 * 1024, PIPE_BYTES)}"
    )
    return warning(Check.MACHINE, subject, text, mend=mend)


def pids_max(root: Path = _CGROUPS, own: Path = _OWN_CGROUP) -> int | None:
    """The lowest limit of tasks of the own control group and those above it; None when there is none to be read."""
    try:
        lines = [line.split(":", 2) for line in own.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        return None
    lowest: int | None = None
    for number, controllers, path in (line for line in lines if len(line) == 3):
        if "pids" in controllers.split(","):
            top = root / "pids"
        elif number == "0" and not controllers:  # version 2
            top = root
        else:
            continue
        folder = top / path.lstrip("/")
        for one in (folder, *folder.parents):
            if not one.is_relative_to(top):
                break
            limit = _limit_in(one / "pids.max")
            if limit is not None:
                lowest = limit if lowest is None else min(lowest, limit)
    return lowest


def _limit_in(file: Path) -> int | None:
    try:
        return int(file.read_text("ascii"))  # "max": no limit
    except (OSError, ValueError):
        return None
