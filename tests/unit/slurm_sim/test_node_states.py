"""One reading of node states, whichever command prints them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mirage.slurm.parsing import parse_sinfo
from mirage.slurm.pyslurm_cluster import node
from slurm_sim.node_states import BASES, FLAGS, UP, node_state
from tests.fakes.fake_pyslurm import Node as PyslurmNode
from tests.libslurm import RELEASES, Release

PRINT_STATES = """
import ctypes, itertools, json, sys
lib = ctypes.CDLL(sys.argv[1])
short, full = lib.slurm_node_state_string, lib.slurm_node_state_string_complete
for call in (short, full):
    call.restype, call.argtypes = ctypes.c_char_p, [ctypes.c_uint32]
bits = [0] + [1 << n for n in range(4, 32)]
states = {base | a | b for base in range(7) for a, b in itertools.combinations_with_replacement(bits, 2)}
print(json.dumps([[short(s).decode(), full(s).decode()] for s in sorted(states)]))
"""
"""Every base with up to two flags, as `sinfo -o %T` prints it and as `scontrol` does."""


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_the_table_has_every_base_and_flag_that_libslurm_prints(release: Release) -> None:
    shown = [node_state(full) for _, full in release.ask(PRINT_STATES) if "?" not in full]
    assert len(shown) > 1000
    assert {state.base for state in shown} == BASES
    assert {flag for state in shown for flag in state.flags} <= FLAGS.keys()


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_sinfos_short_words_mean_what_scontrol_says(release: Release) -> None:
    """With one flag: of several, the short word leaves some out, so Mirage asks sinfo for all of
    them.
    """
    compared, differ = 0, []
    for short, full in release.ask(PRINT_STATES):
        by_sinfo, by_scontrol = node_state(short.lower()), node_state(full)
        if "?" in full or full.count("+") > 1 or by_scontrol.base not in UP | {"DOWN"}:
            continue
        compared += 1
        if (by_sinfo.up, by_sinfo.idle) != (by_scontrol.up, by_scontrol.idle):
            differ.append((short, full))
    assert compared > 60
    assert differ == []


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_the_words_of_plain_sinfo_mean_what_the_long_ones_say(release: Release) -> None:
    program = PRINT_STATES.replace("string_complete", "string_compact")
    differ = set()
    for long, short in release.ask(program):
        by_long, by_short = node_state(long.lower()), node_state(short.lower())
        if "?" not in short and (by_long.up, by_long.idle) != (by_short.up, by_short.idle):
            differ.add((long, short))
    assert differ == set()
    assert node_state("mix#") == node_state("mixed#")


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_sinfo_and_pyslurm_read_every_state_alike(release: Release) -> None:
    for _, full in release.ask(PRINT_STATES):
        if "?" in full:
            continue
        (by_sinfo,) = parse_sinfo(f"n1|gpu|{full.lower()}|\n")
        assert by_sinfo == node(PyslurmNode("n1", full, ["gpu"]))


@pytest.mark.parametrize(
    ("state", "up", "idle"),
    [
        ("IDLE", True, True),
        ("IDLE+CLOUD+POWERED_DOWN", True, True),  # Slurm boots it for a job
        ("IDLE+CLOUD+NOT_RESPONDING+POWERED_DOWN", True, True),
        ("MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", True, False),  # booting, with jobs on it
        ("IDLE+CLOUD+NOT_RESPONDING+POWERING_UP", True, True),
        ("IDLE+POWERING_DOWN", True, False),
        ("IDLE+POWER_DOWN", True, False),
        ("IDLE+PLANNED", True, True),
        ("IDLE+RESERVED", True, False),
        ("MIXED+RESERVED", True, False),
        ("IDLE+COMPLETING", True, False),
        ("IDLE+BLOCKED", True, False),
        ("IDLE+PERFCTRS", True, False),
        ("IDLE+DYNAMIC_NORM", True, True),
        ("IDLE+MAINTENANCE", False, False),
        ("ALLOCATED+MAINTENANCE+RESERVED", False, False),
        ("ALLOCATED+REBOOT_REQUESTED", True, False),
        ("IDLE+REBOOT_REQUESTED", False, False),
        ("DOWN+REBOOT_ISSUED", False, False),
        ("IDLE+NOT_RESPONDING", False, False),
        ("IDLE+DRAIN", False, False),
        ("ALLOCATED+DRAIN", False, False),
        ("IDLE+FAIL", False, False),
        ("IDLE+INVALID_REG", False, False),
        ("IDLE+A_FLAG_OF_TOMORROW", False, False),
        ("FUTURE", False, False),
        ("UNKNOWN", False, False),
        ("ERROR", False, False),
        ("DOWN+CLOUD+POWERED_DOWN", False, False),
        ("DOWN*", False, False),
        (
            "MIXED+CLOUD*",
            False,
            False,
        ),  # how older releases of scontrol print a node that does not respond
        ("?", False, False),  # how sinfo prints a base that it has no word for
    ],
)
def test_what_a_state_means(state: str, up: bool, idle: bool) -> None:
    known = node_state(state)
    assert (known.up, known.idle) == (up, idle)


@pytest.mark.parametrize("text", ["", "IDLE DRAIN", "idle|x", "1"])
def test_what_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no node state"):
        node_state(text)


def test_reading_node_states_does_not_load_numpy() -> None:
    """mirage-submit reads Slurm's answers too, and its user waits for it."""
    program = "import sys, mirage.slurm.commands; print('numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout == "False\n"
