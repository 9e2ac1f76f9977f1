"""A command line of `mirage-submit` or `mirage-sbatch`: Mirage's own options, sbatch's, the script,
its arguments.

Imports little: each `sbatch` of a site that has the wrapper on its PATH is read with this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mirage.chain.sbatch import Ask, SbatchOption, ask_nobody, is_option, take_options
from mirage.errors import InputError

OWN_WITH_VALUE = frozenset(
    {
        "segments",
        "total-time",
        "anywhere",
        "mode",
        "on-failure",
        "penalty-interruption",
        "penalty-overlap",
        "handover-signal",
        "handover-grace",
        "handover-cost",
        "max-overlap",
        "uptime",
        "startup",
        "min-runtime",
        "max-short",
        "health-command",
        "health-http",
        "health-tcp",
        "health-count",
        "health-failures",
        "port",
        "done-file",
        "notify",
        "notify-after",
        "then",
        "ahead",
        "replicas",
        "replica",
        "scale-on",
        "target",
        "prometheus",
        "quiet",
    }
)
OWN_WITHOUT_VALUE = frozenset({"up-front", "nested", "again", "dry-run", "json"})
OWN = OWN_WITH_VALUE | OWN_WITHOUT_VALUE
_DRY = frozenset({"dr", "dry", "dry-", "dry-r", "dry-ru"})
"""No option of sbatch begins so. Whoever abbreviates a dry run must not get a real one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """The command line, taken apart."""

    own: Mapping[str, str]
    """Mirage's options; those without a value are there as an empty string."""
    options: tuple[SbatchOption, ...]
    """sbatch's."""
    script: str
    """Empty: none is named, so sbatch reads it from standard input."""
    arguments: tuple[str, ...]
    is_heterogeneous: bool = False
    """There is a `:` between options, which separates the components of a heterogeneous job."""
    then: tuple[str, ...] = ()
    """Scripts that follow the chain: the values of `--then`, which may be given several times."""

    def has(self, name: str) -> bool:
        """Whether this option of sbatch is given."""
        return any(option.name == name for option in self.options)


def parse_request(words: Sequence[str], ask: Ask = ask_nobody) -> CommandLine:
    """Takes the command line apart; options end at the script, as in sbatch.

    ``ask`` is called once an unknown option is met. InputError: a value is missing.
    """
    own: dict[str, str] = {}
    then: list[str] = []
    options: list[SbatchOption] = []
    is_heterogeneous = False
    rest = list(words)
    while rest and (is_option(rest[0]) or rest[0] == ":"):
        name, has_value, value = rest[0].removeprefix("--").partition("=")
        name = "dry-run" if name in _DRY else name
        taken = 1
        if rest[0] == ":":
            is_heterogeneous = True
        elif not rest[0].startswith("--") or name not in OWN:
            found, taken = take_options(rest, ask)
            options += found
        elif name in OWN_WITHOUT_VALUE:
            own[name] = ""
        else:
            if not has_value:
                if len(rest) < 2:
                    raise InputError(f"--{name} needs a value")
                value, taken = rest[1], 2
            if name == "then":
                then.append(value)
            else:
                own[name] = value
        rest = rest[taken:]
    rest = rest[1:] if rest[:1] == ["--"] else rest
    return CommandLine(
        own=own,
        options=tuple(options),
        script=rest[0] if rest else "",
        arguments=tuple(rest[1:]),
        is_heterogeneous=is_heterogeneous,
        then=tuple(then),
    )
