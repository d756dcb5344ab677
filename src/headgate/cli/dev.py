"""`headgate dev`: a real Kafka with the gateway, sample applications, the pipeline and the web server, to try.

It prints one line to standard output when everything is ready, and runs until SIGINT or SIGTERM, which end all of it.
The folder keeps the cluster's data, so that the next start continues with it.
"""

import argparse
import asyncio
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import uvloop

from headgate.base.clock import SystemClock
from headgate.base.errors import ClusterError
from headgate.cli import logs
from headgate.cli.dev_pipeline import DevPipeline, is_installed
from headgate.cli.features import FAMILIES, check_features, make_features
from headgate.cli.secret_files import warn_of_open_files
from headgate.cli.waiting import Stopped, ready_or_stopped
from headgate.cli.web import create_web, wait_until_read
from headgate.config import Config, load
from headgate.embedded import ClusterSpec, EmbeddedKafka, NodeDeath, StartGivenUpError, StartOptions
from headgate.proxy.server import Gateway
from headgate.sample.outages import DEFAULT_EVERY_S
from headgate.sample.programs import Sample
from headgate.sample.share_consumers import BILLING_SWITCH
from headgate.sample.shop import APPLICATION, BILLING, CATALOG, CONFIG_TOPIC, FULFILMENT, OFFSET_TOPIC, STATUS_TOPIC

_LONGEST_S: Final = 86_400


def define_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gateway-port",
        type=int,
        default=9092,
        metavar="PORT",
        help="port of the gateway; node i has PORT+1+i (default: 9092)",
    )
    parser.add_argument(
        "--kafka-port", type=int, default=19092, metavar="PORT", help="port of the embedded Kafka (default: 19092)"
    )
    parser.add_argument(
        "--web-port",
        type=int,
        default=8080,
        metavar="PORT",
        help="port of the page and the REST interface (default: 8080)",
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path(".headgate"),
        metavar="DIR",
        help="folder for all data (default: .headgate)",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file for everything else")
    parser.add_argument("--no-sample", action="store_true", help="do not start the sample applications")
    parser.add_argument(
        "--outage-every",
        type=_seconds,
        default=DEFAULT_EVERY_S,
        metavar="SECONDS",
        help="how often the downstream of each share group of the sample fails for a while; 0 is never "
        f"(default: {DEFAULT_EVERY_S:.0f})",
    )
    parser.add_argument("--no-pipeline", action="store_true", help="do not start the pipeline that writes the tables")
    parser.add_argument("--no-web", action="store_true", help="do not start the web server")
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    """A whole number of seconds, at most a day."""
    if not text.isdecimal() or int(text) > _LONGEST_S:
        raise argparse.ArgumentTypeError(f"must be a whole number of seconds from 0 to {_LONGEST_S}")
    return float(text)


def run(args: argparse.Namespace) -> int:
    logs.configure()
    data_dir: Path = args.data_dir
    overrides: dict[str, object] = {
        "gateway.listen": f"127.0.0.1:{args.gateway_port}",
        "upstream.bootstrap": [f"127.0.0.1:{args.kafka_port}"],
        "web.listen": f"127.0.0.1:{args.web_port}",
        "tables.path": str(data_dir / "tables"),
        "pipeline.checkpoint": str(data_dir / "checkpoints"),
    }
    if not args.no_sample:
        named = {"status": STATUS_TOPIC, "config": CONFIG_TOPIC, "offset": OFFSET_TOPIC}
        overrides |= {f"connect.sample.{what}_topic": topic for what, topic in named.items()}
    config = load(args.config, os.environ, overrides)
    warn_of_open_files(config, args.config)
    check_features(config)
    spec = ClusterSpec(data_dir=data_dir / "kafka", port=args.kafka_port, log_dir=data_dir / "logs")
    parts: list[Sample | DevPipeline] = []
    if not args.no_sample:
        parts.append(Sample(str(config.gateway.listen), data_dir, outage_every_s=args.outage_every))
    if not args.no_pipeline and is_installed():
        parts.append(DevPipeline(config, data_dir))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(config, spec, parts, has_web=not args.no_web))


async def _run(config: Config, spec: ClusterSpec, parts: Sequence[Sample | DevPipeline], *, has_web: bool) -> int:
    loop = asyncio.get_running_loop()
    stopped = Stopped()
    deaths: list[NodeDeath] = []

    def on_death(death: NodeDeath) -> None:
        deaths.append(death)
        loop.call_soon_threadsafe(stopped.stop, 1)

    kafka = EmbeddedKafka(spec, on_death=on_death)
    clock = SystemClock()
    gateway = Gateway(config, features=make_features(config), families=FAMILIES)
    web = create_web(config) if has_web else None
    async with AsyncExitStack() as stack:
        # Last of all: a gateway in front of a Kafka that has ended would wait for it, and lose its last facts.
        stack.push_async_callback(asyncio.to_thread, kafka.stop)
        # Bind the ports first: without them there is no use in starting Kafka.
        await stack.enter_async_context(gateway.running())
        serving = AsyncExitStack()
        if web is not None:
            stack.enter_context(web.listening())
        try:
            await _start(kafka, stopped)
            if await ready_or_stopped(gateway.problems, stopped, clock):
                # Before the web server, which reads topics that the sample creates.
                await asyncio.gather(*(asyncio.to_thread(part.start) for part in parts))
                line = f"ready gateway={config.gateway.listen} kafka={kafka.bootstrap}"
                if web is not None:
                    await serving.enter_async_context(web.running())
                    await wait_until_read(web, stopped, clock)
                    line += f" web={web.url}"
                if not stopped.event.is_set():
                    print(line, flush=True)
                if any(isinstance(part, Sample) for part in parts) and not stopped.event.is_set():
                    print(
                        _hint(config, parts, spec.data_dir.parent, has_web=web is not None), file=sys.stderr, flush=True
                    )
                await stopped.event.wait()
        except StartGivenUpError:
            return stopped.exit_code
        finally:
            await asyncio.gather(serving.aclose(), *(asyncio.to_thread(part.stop) for part in parts))
    if deaths:
        raise ClusterError(f"the embedded Kafka ended unexpectedly: {deaths[0]}")
    return stopped.exit_code


def _hint(config: Config, parts: Sequence[Sample | DevPipeline], data_dir: Path, *, has_web: bool) -> str:
    """Commands to try, in a form that works in another terminal in the same folder."""
    headgate = program()
    server = f"--bootstrap-server {config.gateway.listen}"
    groups = f"{headgate} streams-groups {server}"
    commands = [f"{groups} --list", f"{groups} --describe --group {APPLICATION} --topology"]
    if any(isinstance(part, DevPipeline) for part in parts):
        commands.append(f"{headgate} tables show app_io --path {shlex.quote(str(config.tables.path))}")
    else:
        commands.append(f"{groups} --describe --group {FULFILMENT} --members")
    if has_web:
        commands.append(f"{headgate} connectors --url http://{config.web.listen} topics {CATALOG}")
    hint = f"headgate: open http://{config.web.listen} to see them on the map\n" if has_web else ""
    hint = "headgate: sample applications are running\n" + hint
    hint += "\n  ".join(("headgate: try, in another terminal in this folder:", *commands))
    if config.share_groups.enable:
        down = shlex.quote(str(data_dir / BILLING_SWITCH))
        breaker = f"{headgate} share-groups {server} --describe --group {BILLING} --circuit-breaker"
        hint += "\n  ".join(("\nheadgate: to see the circuit breaker pause a group:", f"touch {down}", breaker))
    return hint


def program(argument: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """The command that started this program, for commands to paste: `headgate` if it is on every terminal's PATH."""
    started = Path(sys.argv[0] if argument is None else argument)
    if started.name != "headgate":
        return f"{shlex.quote(sys.executable)} -m headgate.cli.main"
    on_path = shutil.which("headgate", path=environ.get("PATH", ""))
    if on_path and "VIRTUAL_ENV" not in environ and Path(on_path) == started.absolute():
        return "headgate"
    folder = Path.cwd()
    return shlex.quote(str(started.relative_to(folder) if started.is_relative_to(folder) else started))


async def _start(kafka: EmbeddedKafka, stopped: Stopped) -> None:
    """Start Kafka on a thread, so that a signal can still end it."""
    given_up = threading.Event()
    patience = StartOptions(progress=lambda text: print(f"headgate: {text}", file=sys.stderr), give_up=given_up.is_set)
    start = asyncio.create_task(asyncio.to_thread(kafka.start, patience))
    signalled = asyncio.create_task(stopped.event.wait())
    await asyncio.wait({start, signalled}, return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    given_up.set()
    await start
