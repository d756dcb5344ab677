"""The profile of a worker shows CPU time, although the sampler also counts threads that wait."""

import pytest

from bench.profiling import OUTSIDE, cpu_by_function

STACKS = """\
thread (1): MainThread;Runner.run (asyncio/runners.py:118) 800
thread (1): MainThread;Runner.run (asyncio/runners.py:118);Link.write (link.py:10) 100
thread (1): MainThread;Runner.run (asyncio/runners.py:118);Link.write (link.py:20) 100
thread (2): headgate-producer;PolledProducer._poll (fact_writer.py:110) 1000
"""


def test_samples_of_a_thread_stand_for_no_more_than_its_cpu_time() -> None:
    cpu = {1: 0.5, 2: 0.01, 3: 0.02}
    ended, passed = cpu_by_function(STACKS, cpu, 1000)
    loop, write = "Runner.run (asyncio/runners.py)", "Link.write (link.py)"
    assert ended[write] == passed[write] == pytest.approx(0.2)
    assert ended[loop] == pytest.approx(0.3)
    assert passed[loop] == pytest.approx(0.5)
    assert ended["PolledProducer._poll (fact_writer.py)"] == pytest.approx(0.01)
    assert ended[OUTSIDE] == pytest.approx(0.02)
    assert sum(ended.values()) == pytest.approx(sum(cpu.values()))
