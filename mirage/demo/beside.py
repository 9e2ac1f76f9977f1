"""The chains under several policies side by side, a process each."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait

from mirage.errors import MirageError
from mirage.ports import Policy
from mirage.provision.chains.run import ChainsResult, RunView, Scenario, run_chains
from slurm_sim import Simulator

MakePolicy = Callable[[Simulator], Policy]


def run_beside(
    scenario: Scenario,
    policies: Sequence[MakePolicy],
    watch: Callable[[int, RunView], None],
) -> list[ChainsResult]:
    """`run_chains` for each policy, with the same results as one after the other.

    ``policies``: such as can be pickled. ``watch`` gets a policy's place in ``policies``, and a
    view. Raises MirageError: what a run raises, or that its process died.
    """
    results: dict[int, ChainsResult] = {}
    with _started(scenario, policies) as pipes:
        while len(results) < len(policies):
            for pipe in wait([pipe for place, pipe in enumerate(pipes) if place not in results]):
                assert isinstance(pipe, Connection)
                place = pipes.index(pipe)
                match _message(pipe):
                    case RunView() as view:
                        watch(place, view)
                    case ChainsResult() as result:
                        results[place] = result
    return [results[place] for place in range(len(policies))]


@contextmanager
def _started(scenario: Scenario, policies: Sequence[MakePolicy]) -> Iterator[list[Connection]]:
    """What the processes send. They end with the context."""
    # Spawned, not forked: libraries like torch have threads, which a fork would leave behind with
    # their locks held.
    context = multiprocessing.get_context("spawn")
    ends = [context.Pipe(duplex=False) for _ in policies]
    processes = [
        context.Process(target=_run, args=(writer, scenario, policy), daemon=True)
        for (_, writer), policy in zip(ends, policies, strict=True)
    ]
    try:
        for process, (_, writer) in zip(processes, ends, strict=True):
            process.start()
            writer.close()
        yield [reader for reader, _ in ends]
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()


def _message(pipe: Connection) -> object:
    try:
        message = pipe.recv()
    except EOFError as error:
        raise MirageError(
            "A process of the simulation died, perhaps for lack of memory."
        ) from error
    if isinstance(message, MirageError):
        raise message
    return message


def _run(pipe: Connection, scenario: Scenario, policy: MakePolicy) -> None:
    # Ctrl-C reaches the whole group of processes; the first one alone is to answer it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pipe.send(run_chains(scenario, policy, pipe.send))
    except MirageError as error:
        pipe.send(error)
