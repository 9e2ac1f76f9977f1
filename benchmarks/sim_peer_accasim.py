"""AccaSim's EASY backfilling on an SWF file, run by sim_speed.py in an environment of AccaSim's
own.

    python sim_peer_accasim.py FILE.swf NODES

Prints jobs and CPU seconds as JSON. AccaSim 1.1.3 does not import on Python >= 3.10, which moved an
abstract class; it is put back here, in this process only.
"""

import collections
import collections.abc
import contextlib
import io
import json
import os
import sys
import tempfile
import time

collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]

from accasim.base.allocator_class import FirstFit  # noqa: E402
from accasim.base.scheduler_class import EASYBackfilling  # noqa: E402
from accasim.base.simulator_class import Simulator  # noqa: E402


def main() -> None:
    """Reading the jobs is part of AccaSim's run: it reads as it goes."""
    workload, nodes = os.path.abspath(sys.argv[1]), int(sys.argv[2])  # noqa: PTH100
    with open(workload) as file:  # noqa: PTH123
        jobs = sum(not line.startswith(";") for line in file)
    os.chdir(tempfile.mkdtemp())
    system = {
        "groups": {"g0": {"core": 1}},
        "resources": {"g0": nodes},
        "equivalence": {"processor": {"core": 1}},
    }
    with open("system.json", "w") as file:  # noqa: PTH123
        json.dump(system | {"start_time": 0}, file)
    with contextlib.redirect_stdout(io.StringIO()):
        simulator = Simulator(
            workload, "system.json", EASYBackfilling(FirstFit()), statistics_output=False
        )
        begin = time.process_time()
        simulator.start_simulation()
        seconds = time.process_time() - begin
    print(json.dumps({"jobs": jobs, "cpu_s": seconds}))


if __name__ == "__main__":
    main()
