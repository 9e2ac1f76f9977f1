"""How installed programs start.

A command's modules are imported here, so Ctrl-C ends it without a traceback from its first moment on.
"""

from __future__ import annotations

from importlib import import_module

INTERRUPTED = 130
"""Exit code, as shells give it for SIGINT."""


def start(module: str) -> int:
    """Imports the module and runs its ``main``; returns the exit code."""
    try:
        return int(import_module(module).main())
    except KeyboardInterrupt:
        return INTERRUPTED


def slurm_sim() -> int:
    return start("slurm_sim.cli.main")
