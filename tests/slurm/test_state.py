"""The 24 hours that are rebuilt from sacct at a cold start are those that live polls would have
shown.
"""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from mirage.slurm.commands import CommandCluster
from mirage.slurm.runner import Runner
from mirage.state.encoder import JobPair, encode, vector
from mirage.state.rebuild import rebuild
from tests.slurm.site import ALICE, BOB

pytestmark = pytest.mark.slurm

STEP_S = 12
"""Things happen right after a step, so that by the next one slurmctld has settled, on a busy machine,
too.
"""


def seconds_until(at_s):
    return max(1, int(at_s - time.time()))


def test_rebuilt_steps_are_the_live_ones(site):
    script = site.script(ALICE, "nap.sh", "#!/bin/sh\nsleep ${1:-60}\n")
    site.script(BOB, "nap.sh", "#!/bin/sh\nsleep ${1:-60}\n")

    def sbatch(user, *words):
        path = script.replace(ALICE, user)
        return int(
            site.run(
                user, "sbatch", "--parsable", "-o/dev/null", *words[:-1], path, words[-1]
            ).stdout
        )

    pair = []
    acts = [
        lambda: pair.append(sbatch(ALICE, "-N2", "-t5", "300")),
        lambda: pair.append(sbatch(ALICE, "-N1", "-t5", f"-dafterany:{pair[0]}", "60")),
        lambda: [sbatch(BOB, "-N1", f"-t{minutes}", "18") for minutes in (1, 2, 3)],
        lambda: sbatch(BOB, "-N6", "-t10", "5"),
        lambda: [
            # Between polls 5 and 6, however late sbatch is.
            sbatch(BOB, "-N1", "-t9", f"--begin=now+{seconds_until(start + 5 * STEP_S + 3)}", "20"),
            sbatch(BOB, "-N1", "-t7", "--hold", "20"),
        ],
        lambda: site.run("root", "scontrol", "update", "NodeName=n6", "State=DRAIN", "Reason=test"),
        lambda: site.run("root", "scancel", "-u", BOB, "-t", "PD"),
        lambda: site.run("root", "scontrol", "update", "NodeName=n6", "State=RESUME"),
        lambda: site.run(ALICE, "scontrol", "update", f"JobId={pair[1]}", "Dependency="),
        lambda: sbatch(BOB, "-N6", "-t2", "1"),
    ]
    cluster = CommandCluster(Runner(env=os.environ | site.environment("root")))
    live, start = [], int(time.time()) + 2
    for number, act in enumerate(acts, start=1):
        act()
        time.sleep(max(0.0, start + number * STEP_S + 0.2 - time.time()))
        live.append(cluster.snapshot())
        time.sleep(
            1
        )  # times are whole seconds: what happens within the snapshot's own can't be told from it
    now = live[-1]
    time.sleep(4)  # slurmdbd lags by seconds
    records = cluster.accounting(now.at_s - 3600, now.at_s + 10)
    events = cluster.node_events(now.at_s - 3600, now.at_s + 10)
    pool = now.pool_of("gpu")
    rebuilt = rebuild(records, events, now, pool, STEP_S, len(live))
    assert [step.at_s for step in rebuilt] == [snapshot.at_s for snapshot in live], (
        "a poll came late; run it again"
    )
    watched = JobPair(now.by_id[pair[0]], now.by_id[pair[1]])
    expected = np.array([vector(encode(snapshot, pool), watched) for snapshot in live])
    found = np.array([vector(step, watched) for step in rebuilt])
    np.testing.assert_array_equal(found, expected, err_msg="\n".join(map(str, records)))
    assert expected[:, 0].max() >= 1, "something was queued"
    assert len({tuple(row) for row in expected.tolist()}) > 6
