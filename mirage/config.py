"""The configuration file (TOML). Every error names the file, the line, the key, and what was
expected.

The dataclasses below are the schema: a field is a key, its default is the default, its type is
checked.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from mirage.domain import ActingMode
from mirage.errors import InputError
from slurm_sim.files import read_text
from slurm_sim.formats import parse_toml

R = TypeVar("R")
MOST = 10**9
"""No number is larger: as seconds, 31 years."""


def _positive(default: float) -> Any:
    return field(default=default, metadata={"min": 1})


@dataclass(frozen=True)
class AdapterConfig:
    """How Slurm is reached."""

    adapter: str = field(
        default="auto", metadata={"choices": ("auto", "commands", "pyslurm", "rest")}
    )
    """`commands`, `pyslurm`, `rest` (docs/rest.md), or `auto`: PySlurm where it is the running
    Slurm's, else the commands (docs/service-checks.md).
    """
    bin_dir: str = ""
    """Folder of Slurm's commands; empty: found on PATH."""
    timeout_s: int = _positive(30)
    """A command or request that takes longer is ended and counts as "no answer"."""
    rest_url: str = ""
    """For `rest`: where slurmrestd is, `https://HOST`, `unix:/FILE` or `http://127.0.0.1:PORT`."""
    rest_user: str = "slurmrestd"
    """Whom slurmrestd runs as, where it is on this machine; root and slurm are trusted, too."""
    rest_ca_file: str = ""
    """Certificates (PEM) that prove an `https` server; empty: the system's."""
    rest_token_file: str = ""
    """File with the JSON web token, read again for each request; empty: it is in $SLURM_JWT."""
    rest_version: str = field(default="", metadata={"pattern": r"v\d+\.\d+\.\d+$"})
    """Of the API, `v0.0.42`; empty: one that Mirage knows and slurmrestd serves."""


STORE_URL = r"sqlite:///.|(postgresql|mariadb)://."


@dataclass(frozen=True, kw_only=True)
class DaemonConfig:
    poll_s: int = _positive(600)
    """Seconds between two cycles. The paper's interval is 600. An agent looks more often at short
    links.
    """
    store: str = field(default="", metadata={"secret": True, "pattern": STORE_URL})
    """URL of the database (docs/store.md); empty: in the state folder (/var/lib/mirage,
    ~/.local/state/mirage).
    """
    store_file: str = ""
    """File whose first line is that URL, in place of `store`: for a password that this file must
    not have.
    """
    socket: str = "/run/mirage/mirage.sock"
    """Where users' `mirage status` asks the daemon; empty: nowhere."""
    metrics: str = ""
    """HOST:PORT where Prometheus scrapes `/metrics`; empty: nowhere."""
    web: str = ""
    """HOST:PORT of this machine where the web page is (docs/web.md; needs the extra `web`); empty:
    nowhere.
    """
    hosts: tuple[str, ...] = ()
    """Further names by which browsers and Prometheus call this machine, as behind a proxy."""
    log_level: str = field(
        default="info", metadata={"choices": ("debug", "info", "warning", "error")}
    )
    """What is less grave is not logged."""


@dataclass(frozen=True)
class RetentionConfig:
    """What is older goes, a little in each cycle. The history that policies need is kept by itself:
    two days.
    """

    decisions_days: int = _positive(90)
    """Decisions and releases."""
    chains_days: int = _positive(365)
    """Chains that are over, from their end."""


@dataclass(frozen=True, kw_only=True)
class ActingConfig:
    """What the service may do (docs/service.md)."""

    mode: str = field(default="", metadata={"choices": ("", *(mode.value for mode in ActingMode))})
    """Empty: observe for the daemon, enforce for a user's own agent."""
    partitions: tuple[str, ...] = ()
    """Acts on jobs of these only; empty: of all."""
    accounts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    disable_file: str = ""
    """While it exists nothing is acted on; empty: /etc/mirage/disabled. Agents also heed one in
    their state folder.
    """
    most_ahead: int = _positive(10)
    """Links of one chain that compete for nodes at once."""
    releases_per_minute: int = _positive(30)
    """At most; no user takes what another one waits for."""
    chains_per_user_per_hour: int = _positive(60)
    """New chains that are taken under watch; further ones are left to Slurm's own dependency until
    the hour is over.
    """
    max_age_s: int = _positive(300)
    """Nothing is acted on that was seen longer ago."""


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """The record of every decision (docs/audit.md)."""

    file: str = ""
    """Empty: audit.jsonl beside the store."""
    max_mib: int = _positive(64)
    """A larger file is put away, and a new one begun;"""
    max_days: int = _positive(7)
    """an older one too."""
    keep: int = _positive(20)
    """So many files that were put away are kept."""


@dataclass(frozen=True)
class TimerConfig:
    lead_s: int = _positive(10_800)
    """The successor is let in this long before its predecessor's limit."""


@dataclass(frozen=True)
class AverageConfig:
    last: int = _positive(100)
    """Mean over this many jobs that started last."""


@dataclass(frozen=True)
class QuantileConfig:
    last: int = _positive(400)
    """The law of waits is that of at most this many like jobs that started last."""
    at_least: int = _positive(30)
    """With fewer like jobs, less alike ones count too."""


@dataclass(frozen=True, kw_only=True)
class GoodputConfig:
    """Training chains (`policy.train`)."""

    last: int = _positive(400)
    """The law of waits is that of at most this many like jobs that started last."""
    at_least: int = _positive(30)
    """With fewer like jobs, less alike ones count too."""


UNTRAINED = ("reactive", "timer", "avg", "quantile")
TRAINED = (
    "random-forest",
    "xgboost",
    "transformer",
    "moe",
    "transformer-dqn",
    "moe-dqn",
    "transformer-pg",
    "moe-pg",
    "quantile",
)
"""These need `model`; `quantile` is both: with a model its quantiles are conditional on the
cluster's state.
"""


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    name: str = field(
        default="quantile", metadata={"choices": tuple(dict.fromkeys((*UNTRAINED, *TRAINED)))}
    )
    model: str = ""
    """Folder of a trained model, `models/<cluster>/<method>`; empty: none."""
    timer: TimerConfig = TimerConfig()
    avg: AverageConfig = AverageConfig()
    quantile: QuantileConfig = QuantileConfig()
    """Without a model, and where a model can't be trusted."""
    train: str = field(default="goodput", metadata={"choices": ("goodput", "pair")})
    """Who decides about training chains without penalties of their own: `goodput`, or `pair`, the
    policy above. `reactive`, `timer` and `avg` decide about all chains.
    """
    goodput: GoodputConfig = GoodputConfig()


@dataclass(frozen=True)
class RoutingConfig:
    model: str = ""
    """Folder of trained agents (`mirage route train`), published with each cycle."""
    partitions: str = ""
    """Partitions, separated by commas, to which jobs that name none may go; empty: the agents'; without
    agents nothing is published.
    """
    run: str = "/run/mirage"
    """Folder that the job_submit plugin reads."""
    speeds: str = ""
    """File of the speeds of partitions or GPU types, for links that may go anywhere; empty: all are
    equally fast.
    """
    valid_s: int = field(default=0, metadata={"min": 0})
    """The plugin refuses a state older than this; 0: two cycles and a minute."""


@dataclass(frozen=True, kw_only=True)
class ServicesConfig:
    """What one user's services of several replicas may have in all (docs/replicas.md)."""

    most_replicas: int = field(default=32, metadata={"min": 0})
    """0: no bound."""
    most_gpus: int = field(default=0, metadata={"min": 0})
    """As their options of sbatch ask for them; 0: no bound."""


@dataclass(frozen=True, kw_only=True)
class Config:
    cluster: AdapterConfig = AdapterConfig()
    daemon: DaemonConfig = DaemonConfig()
    retention: RetentionConfig = RetentionConfig()
    acting: ActingConfig = ActingConfig()
    audit: AuditConfig = AuditConfig()
    policy: PolicyConfig = PolicyConfig()
    routing: RoutingConfig = RoutingConfig()
    services: ServicesConfig = ServicesConfig()


Tree = dict[str, Any]
"""Checked values by key; a table is a Tree again. What is not in it has its default."""


def load_config(path: Path | None) -> Config:
    """Reads one file; None gives the defaults. Raises InputError."""
    return made_of({} if path is None else read_tree(path))


def parse_config(text: str, name: str = "mirage.toml") -> Config:
    """Parses and checks a configuration. ``name`` stands in the errors. Raises InputError."""
    return made_of(parse_tree(text, name))


def read_tree(path: Path) -> Tree:
    """The checked values of a file. Raises InputError."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        words = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: can't read the configuration: {words}") from error
    return parse_tree(text, str(path))


def parse_tree(text: str, name: str) -> Tree:
    """The checked values of a TOML text. Raises InputError."""
    try:
        tree = parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(_syntax_error(name, str(error))) from error
    return check_tree(tree, _Source(name, text).error)


def read_typed(kind: type[R], path: Path) -> R:
    """A file of another schema than `Config`, checked the same way. Raises InputError."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: can't be read: {error}") from error
    try:
        tree = parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(_syntax_error(str(path), str(error))) from error
    made: R = _made(kind, _checked(kind, tree, (), _Source(str(path), text).error))
    return made


def check_tree(tree: Tree, fail: Callable[[tuple[str, ...], str], InputError]) -> Tree:
    """The tree, if its keys and values are what `Config` has. ``fail``: makes the error of a key.
    Raises InputError.
    """
    return _checked(Config, tree, (), fail)


def made_of(tree: Tree) -> Config:
    """The configuration of a checked tree."""
    config = _made(Config, tree)
    assert isinstance(config, Config)
    return config


def _syntax_error(name: str, message: str) -> str:
    match = re.search(r"\(at line (\d+), column (\d+)\)", message)
    where = f"{name}:{match[1]}:{match[2]}" if match else f"{name} (end of file)"
    return f"{where}: not TOML: {re.sub(r' *[(]at .*[)]$', '', message)}"


@dataclass(frozen=True)
class _Source:
    name: str
    text: str

    def error(self, path: tuple[str, ...], problem: str) -> InputError:
        return InputError(f"{self.name}:{self._line(path)}: {'.'.join(path)}: {problem}")

    def _line(self, path: tuple[str, ...]) -> int:
        """Line of a key, 1-based: the last line that names a longest prefix of the path."""
        section: tuple[str, ...] = ()
        best, best_line = 0, 1
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := re.match(r"\s*\[([^\[\]]+)\]", line):
                section = tuple(part.strip(" \"'") for part in header[1].split("."))
                here = section
            elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
                here = section + tuple(part.strip("\"'") for part in key[1].split("."))
            else:
                continue
            if here == path[: len(here)] and len(here) > best:
                best, best_line = len(here), number
        return best_line


_Fail = Callable[[tuple[str, ...], str], InputError]


def _checked(kind: type, tree: Tree, path: tuple[str, ...], fail: _Fail) -> Tree:
    known = {f.name: f for f in fields(kind)}
    types = get_type_hints(kind)
    values: Tree = {}
    for key, value in tree.items():
        here = (*path, key)
        if key not in known:
            raise fail(here, _unknown(key, list(known)))
        if is_dataclass(types[key]):
            if not isinstance(value, dict):
                raise fail(here, f"expected a table [{'.'.join(here)}], got {_show(value)}")
            values[key] = _checked(types[key], value, here, fail)
        else:
            values[key] = _check(types[key], known[key].metadata, value, here, fail)
    return values


def _made(kind: type, tree: Tree) -> Any:
    types = get_type_hints(kind)
    return kind(
        **{
            key: _made(types[key], value) if is_dataclass(types[key]) else value
            for key, value in tree.items()
        }
    )


def _unknown(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"
    return f"unknown key; {hint}"


def _check(
    kind: type, rules: Mapping[str, Any], value: Any, here: tuple[str, ...], fail: _Fail
) -> Any:
    got = type(value).__name__ if "secret" in rules else _show(value)
    if kind == tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
            raise fail(here, f'expected a list of names, ["a", "b"], got {got}')
        return tuple(value)
    if type(value) is not kind:
        raise fail(here, f"expected {_WORDS[kind]}, got {got}")
    if isinstance(value, int) and value < rules.get("min", value):
        raise fail(here, f"expected at least {rules['min']}, got {value}")
    if isinstance(value, int) and value > MOST:
        raise fail(here, f"expected at most {MOST}, got {value}")
    if "choices" in rules and value not in rules["choices"]:
        raise fail(
            here, f"expected one of {', '.join(filter(None, rules['choices']))}, got {value!r}"
        )
    if "pattern" in rules and value and not re.match(rules["pattern"], str(value)):
        raise fail(here, "expected sqlite:///FILE, postgresql://... or mariadb://...")
    return value


_WORDS: dict[type, str] = {
    int: "a whole number",
    str: "a string",
    float: "a number",
    bool: "true or false",
}


def _show(value: Any) -> str:
    return f"{value!r} ({type(value).__name__})"
