"""A simulated cluster with one worker, and a way to start programs on it."""

import pytest

from headgate.topologies.model.group_state import Bookkeeping
from tests.unit.topologies.simulation import Consumer, Deploy, Worker, World


@pytest.fixture(params=list(Bookkeeping), ids=lambda bookkeeping: bookkeeping.value)
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


@pytest.fixture
def worker(world: World) -> Worker:
    return world.worker()


@pytest.fixture
def deploy(world: World, worker: Worker) -> Deploy:
    """Start a program, join, and push if asked."""

    def start(program: str, *, at: Worker = worker, process: str = "", version: int = 1, push: bool = True) -> Consumer:
        consumer = world.start(program, at, process=process, version=version)
        world.join(consumer)
        if consumer.asked and push:
            at.push(consumer)
        return consumer

    return start
