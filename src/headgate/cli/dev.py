"""`headgate dev`: a real Kafka and the gateway in front of it, in one process and one folder, to try Headgate with.

One line on standard output when all of it answers, then it runs until SIGINT or SIGTERM, which end all of it. The
folder keeps the cluster's data, so that the next start goes on where this one ended.
"""

import argparse
import asyncio
import os
import sys
import threading
from pathlib import Path

import uvloop

from headgate.base.errors import ClusterError
from headgate.cli import logs
from headgate.cli.features import check_features, make_features
from headgate.cli.sample import APPLICATION, DEMO, Sample
from headgate.cli.waiting import Stopped, ready_or_stopped
from headgate.config import Config, load
from headgate.gateway.server import Gateway
from headgate.kafka.embedded import ClusterSpec, EmbeddedKafka, NodeDeath, Patience, StartGivenUpError


# argparse gives the type of add_subparsers() no public name.
def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("dev", help="a real Kafka with the gateway in front of it, to try")
    parser.add_argument("--gateway-port", type=int, default=9092, metavar="PORT", help="node i listens on PORT+1+i")
    parser.add_argument("--kafka-port", type=int, default=19092, metavar="PORT", help="of the embedded Kafka")
    parser.add_argument("--web-port", type=int, default=8080, metavar="PORT", help="of the page (not in this version)")
    parser.add_argument("--data-dir", type=Path, default=Path(".headgate"), metavar="DIR", help="default: .headgate")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file for everything else")
    parser.add_argument(
        "--no-sample", action="store_true", help="leave out the sample: a producer, two Streams members"
    )
    for part in ("pipeline", "web"):
        parser.add_argument(f"--no-{part}", action="store_true", help=f"leave out the {part} (not in this version)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    logs.configure()
    data_dir: Path = args.data_dir
    overrides = {
        "gateway.listen": f"127.0.0.1:{args.gateway_port}",
        "upstream.bootstrap": [f"127.0.0.1:{args.kafka_port}"],
        "tables.path": str(data_dir / "tables"),
        "pipeline.checkpoint": str(data_dir / "checkpoints"),
    }
    config = load(args.config, os.environ, overrides)
    check_features(config)
    spec = ClusterSpec(data_dir=data_dir / "kafka", port=args.kafka_port, log_dir=data_dir / "logs")
    sample = None if args.no_sample else Sample(str(config.gateway.listen), data_dir)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(config, spec, sample))


async def _run(config: Config, spec: ClusterSpec, sample: Sample | None) -> int:
    loop = asyncio.get_running_loop()
    stopped = Stopped()
    deaths: list[NodeDeath] = []

    def on_death(death: NodeDeath) -> None:
        deaths.append(death)
        loop.call_soon_threadsafe(stopped.stop, 1)

    kafka = EmbeddedKafka(spec, on_death=on_death)
    gateway = Gateway(config, features=make_features(config))
    # The gateway's ports first: without them there is no use in starting Kafka.
    async with gateway.running():
        try:
            await _start(kafka, stopped)
            if await ready_or_stopped(gateway.problems, stopped):
                if sample is not None:
                    await asyncio.to_thread(sample.start)
                print(f"ready gateway={config.gateway.listen} kafka={kafka.bootstrap}", flush=True)
                if sample is not None:
                    print(_hint(str(config.gateway.listen)), file=sys.stderr, flush=True)
                await stopped.event.wait()
        except StartGivenUpError:
            return stopped.exit_code
        finally:
            if sample is not None:
                await asyncio.to_thread(sample.stop)
            await asyncio.to_thread(kafka.stop)
    if deaths:
        raise ClusterError(f"the embedded Kafka ended by itself: {deaths[0]}")
    return stopped.exit_code


def _hint(gateway: str) -> str:
    return f"""headgate: a sample is running behind it. Try, in another terminal:
  headgate streams-groups --bootstrap-server {gateway} --list
  headgate streams-groups --bootstrap-server {gateway} --describe --group {APPLICATION} --topology
  headgate streams-groups --bootstrap-server {gateway} --describe --group {DEMO} --members"""


async def _start(kafka: EmbeddedKafka, stopped: Stopped) -> None:
    """Start Kafka on a thread, so that a signal can still end it."""
    given_up = threading.Event()
    patience = Patience(progress=lambda text: print(f"headgate: {text}", file=sys.stderr), give_up=given_up.is_set)
    start = asyncio.create_task(asyncio.to_thread(kafka.start, patience))
    signalled = asyncio.create_task(stopped.event.wait())
    await asyncio.wait({start, signalled}, return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    given_up.set()
    await start
