"""hpcsim's FIFO with its EASY backfilling on an SWF file, run by sim_speed.py in an environment of
hpcsim's own.

    python sim_peer_hpcsim.py FILE.swf NODES

Prints jobs, CPU seconds and mean wait as JSON. A node is one GPU here, of which a job takes all the
memory, or several jobs would share it; without a model (`arch`) a job does one iteration a second
on each. hpcsim reads a job's limit from `requested_runtime`, which no class of its jobs has. Its
samples of power and use, one a simulated minute, are off.

It does less than backfilling. Its FIFO starts whatever fits and reserves nothing for the first job,
so that nothing is left to backfill; and all that a pass starts is looked up before any of it is
placed, so that of jobs which fit only the first gets its nodes and the others wait for the next
submission or end: two jobs of one node, submitted together to two free nodes, run one after the
other.
"""

import json
import sys
import time

from hpcsim import (
    GPU_SPECS,
    BackfillWrapper,
    Cluster,
    EASYBackfillPolicy,
    GPUType,
    SimulationEngine,
    TrainingJob,
    create_scheduler,
)
from hpcsim.cluster.cluster import ClusterConfig, NodeSpec

GPU = GPUType.V100
NEVER_S = 1e10


def main() -> None:
    """Reading the jobs is outside the time."""
    cluster = Cluster(
        ClusterConfig("nodes", [NodeSpec(int(sys.argv[2]), gpu_type=GPU, gpus_per_node=1)])
    )
    jobs = []
    with open(sys.argv[1]) as file:  # noqa: PTH123
        for line in file:
            if not line.startswith(";"):
                number, submit_s, _, runtime_s, nodes, _, _, _, limit_s, *_ = line.split()
                job = TrainingJob(
                    job_id=number,
                    submit_time=int(submit_s),
                    arch=None,
                    num_gpus_requested=int(nodes),
                    num_iterations=int(nodes) * int(runtime_s),
                    memory_per_gpu_gb=GPU_SPECS[GPU].memory_gb,
                )
                job.requested_runtime = int(limit_s)
                jobs.append(job)
    scheduler = BackfillWrapper(create_scheduler("fifo", cluster), EASYBackfillPolicy())
    end_s = 10 * max(job.submit_time for job in jobs)
    SimulationEngine.METRIC_INTERVAL = NEVER_S
    begin = time.process_time()
    engine = SimulationEngine(cluster, scheduler, jobs, max_sim_time=end_s)
    engine.run()
    seconds = time.process_time() - begin
    waits_s = [job.start_time - job.submit_time for job in jobs]
    print(
        json.dumps(
            {"jobs": len(jobs), "cpu_s": seconds, "mean_wait_s": sum(waits_s) / len(waits_s)}
        )
    )


if __name__ == "__main__":
    main()
