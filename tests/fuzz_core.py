"""Compares a sanitized build of the core with the reference on random simulations: see
scripts/fuzz-core.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path


def load(core: Path) -> None:
    """Makes this file the core that `slurm_sim.simulator` imports."""
    name = "slurm_sim.core._core"
    spec = importlib.util.spec_from_file_location(name, core)
    if spec is None or spec.loader is None:
        sys.exit(f"{core} is no extension module")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def uniform(seed: int) -> Callable[[int, int], int]:
    return random.Random(seed).randint


def skewed(seed: int) -> Callable[[int, int], int]:
    """Mostly the least values, so that many things happen at once."""
    rng = random.Random(seed)

    def roll(least: int, most: int) -> int:
        kind = rng.random()
        return (
            least
            if kind < 0.3
            else rng.randint(least, min(most, least + 4) if kind < 0.65 else most)
        )

    return roll


def compare(seed: int) -> bool:
    """One cluster, its jobs, and calls with time between them; whether both simulators always
    agree.
    """
    from slurm_sim.errors import SimulationError
    from slurm_sim.simulator import Simulator
    from tests.reference.simulator import ReferenceSimulator as Reference
    from tests.sim_random import (
        accepted,
        call,
        calls,
        config,
        episodes,
        everything,
        listen,
        long_queue,
        middle,
        specs,
        table,
    )

    dice = uniform(seed) if seed % 2 else skewed(seed)
    rich = bool(seed % 4)
    if seed % 20 == 0:
        given = long_queue(dice)
    elif seed % 5 == 0:
        given = middle(dice, rich)
    else:
        cluster = config(dice, rich)
        given = (
            cluster,
            accepted(cluster, specs(dice, cluster, rich, exact=seed % 7 == 0)),
        )
        if seed % 3 == 0 and given[1]:
            given = cluster, table(*given)
        if seed % 4 == 1 and episodes(Reference, *given, seed) != episodes(Simulator, *given, seed):
            return False
    make, make_core = (
        (Reference, Simulator) if len(given) == 2 else (Reference.from_state, Simulator.from_state)
    )
    try:
        reference = make(*given)
    except SimulationError as error:
        try:
            make_core(*given)
        except SimulationError as other:
            return str(error) == str(other)
        return False
    core = make_core(*given)
    hooked = seed % 6 < 2
    heard = [listen(sim) for sim in (reference, core)] if hooked else []
    for seconds, name, subject, number in calls(dice):
        reference.step(seconds)
        core.step(seconds)
        if everything(reference) != everything(core):
            return False
        if call(reference, name, subject, number) != call(core, name, subject, number):
            return False
        if name == "fork" and not hooked:
            core = core.fork()
    reference.run()
    core.run()
    return everything(reference) == everything(core) and heard[:1] == heard[1:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--core", type=Path, required=True, help="the extension module to test")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long (30)")
    parser.add_argument(
        "--seed", type=int, default=1, help="the first of the seeds, which are consecutive (1)"
    )
    args = parser.parse_args()
    load(args.core)
    seed, end = args.seed, time.monotonic() + args.seconds
    while time.monotonic() < end:
        if not compare(seed):
            print(f"seed {seed}: core and reference differ", file=sys.stderr)
            return 1
        seed += 1
    print(f"{seed - args.seed} random simulations agree, seeds {args.seed} to {seed - 1}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
