"""How a worker sets up its interpreter."""

import gc
import sys

from headgate.cli.worker import tune_interpreter


def test_a_thread_that_decodes_gives_the_interpreter_away_within_a_millisecond() -> None:
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    try:
        tune_interpreter()
        assert sys.getswitchinterval() < 0.001
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
