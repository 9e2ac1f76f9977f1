"""Settings: a kind of cluster, how its jobs arrive, and what a scheduler knows of their speed.

A setting is a name of `SETTINGS`, or a TOML file that changes one:

    base = "small"
    types = ["vgg-16", "dssm"]   # of the base's job types; default: all
    drawn_types = 1          # jobs are of the first so many of them; the others come later (Figure 15)
    [world]                  # fields of `ElasticConfig`
    servers = 20
    [workload]               # fields of `ElasticWorkload`
    jobs_per_slot = 1.5
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mirage.elastic.baselines import BASELINES, Allocator, baseline
from mirage.elastic.speed import dl2_types
from mirage.elastic.workload import ElasticJobs, ElasticWorkload, draw
from mirage.elastic.world import ElasticConfig
from mirage.errors import InputError
from slurm_sim.files import read_text
from slurm_sim.formats import parse_toml

T = TypeVar("T", ElasticConfig, ElasticWorkload)


class Part(IntEnum):
    """What job sequences are for. Those of two parts never have a seed in common."""

    TRAINING = 0
    VALIDATION = 1
    """Choose the weights that are kept."""
    TEST = 2
    """Of `mirage elastic evaluate`; training never sees them."""


@dataclass(frozen=True, kw_only=True)
class ElasticSetting:
    """A world and its jobs."""

    name: str
    summary: str
    """In words, for a report."""
    world: ElasticConfig
    draw: Callable[[np.random.Generator], ElasticJobs]
    """One sequence; all sequences of a setting have the same number of jobs."""
    workload: ElasticWorkload | None = None
    """What `draw` draws from, where it is one; a file's `[workload]` changes it."""
    places: int = 20
    """J of the paper's policy: jobs in a batch."""
    knows_speeds: bool = False
    """Whether schedulers may read the table of speeds; else they fit what they measure."""
    against: tuple[str, ...] = ("drf", "optimus", "greedy-learnt", "greedy")
    """Schedulers that a policy is compared with where nobody says which."""
    reference: str = "drf"
    """Completion times are also given as a ratio to this scheduler's."""
    own_schedulers: Mapping[str, Callable[[], Allocator]] = field(default_factory=dict)
    """Schedulers that exist here alone, or are built another way here."""
    test: Sequence[ElasticJobs] = ()
    """Sequences for tests; none: they are drawn."""

    @property
    def jobs(self) -> int:
        """K: jobs of a sequence."""
        return len(self.draw(np.random.default_rng(0)))

    def sequences(self, part: Part, seed: int, count: int) -> list[ElasticJobs]:
        """The same for the same arguments; at most as many as there are where tests are given."""
        if part == Part.TEST and self.test:
            return list(self.test[:count])
        rng = np.random.default_rng([int(part), seed])
        return [self.draw(rng) for _ in range(count)]

    def scheduler(self, name: str, *, seed: int) -> Allocator:
        """A scheduler without learning. Raises InputError."""
        if name in self.own_schedulers:
            return self.own_schedulers[name]()
        if name not in BASELINES:
            names = ", ".join(dict.fromkeys([*self.own_schedulers, *BASELINES]))
            raise InputError(f"no scheduler {name!r}; there are {names}.")
        return baseline(name, seed=seed)


def _setting(
    name: str,
    summary: str,
    world: ElasticConfig,
    workload: ElasticWorkload,
    **options: Any,
) -> ElasticSetting:
    return ElasticSetting(
        name=name,
        summary=summary,
        world=world,
        draw=partial(draw, workload),
        workload=workload,
        **options,
    )


UNCERTAIN: Mapping[str, float] = {"variation": 0.3, "interference": 0.1}
"""Of the worlds in which a scheduler has to learn: section 6.4's widest variation; a tenth of the
speed is lost for each neighbour.
"""
EPOCH_ERROR = 0.2
MOST_SLOTS = 1000
"""Of an episode: a policy that has not learnt yet may never end a job."""


def _small() -> ElasticSetting:
    return _setting(
        "small",
        "13 servers of 2 GPUs, 30 jobs, 2 a slot; speeds vary by 30 %, neighbours cost 10 % each,"
        " owners' epochs are off by up to 20 %",
        ElasticConfig(types=dl2_types(), most_slots=MOST_SLOTS, **UNCERTAIN),  # type: ignore[arg-type]
        ElasticWorkload(types=dl2_types(), jobs_per_slot=2.0, epoch_error=EPOCH_ERROR),
    )


def _small_known() -> ElasticSetting:
    return _setting(
        "small-known",
        "13 servers of 2 GPUs, 30 jobs, 2 a slot; speeds and epochs are known and exact",
        ElasticConfig(types=dl2_types(), most_slots=MOST_SLOTS),
        ElasticWorkload(types=dl2_types(), jobs_per_slot=2.0),
        knows_speeds=True,
    )


def _large() -> ElasticSetting:
    return _setting(
        "large",
        "500 servers of 2 GPUs, 200 jobs, 25 a slot; speeds vary by 30 %, neighbours cost 10 %"
        " each, owners' epochs are off by up to 20 %",
        ElasticConfig(types=dl2_types(), servers=500, most_slots=MOST_SLOTS, **UNCERTAIN),  # type: ignore[arg-type]
        ElasticWorkload(types=dl2_types(), jobs=200, jobs_per_slot=25.0, epoch_error=EPOCH_ERROR),
        places=40,
    )


def _large_known() -> ElasticSetting:
    return _setting(
        "large-known",
        "500 servers of 2 GPUs, 200 jobs, 25 a slot; speeds and epochs are known and exact",
        ElasticConfig(types=dl2_types(), servers=500, most_slots=MOST_SLOTS),
        ElasticWorkload(types=dl2_types(), jobs=200, jobs_per_slot=25.0),
        places=40,
        knows_speeds=True,
    )


def _pollux() -> ElasticSetting:
    from mirage.elastic.measured.measuring import LearntRounds
    from mirage.elastic.measured.rounds import RuleRounds
    from mirage.elastic.measured.schedulers import GreedyRounds, PolluxOptimus, Tiresias
    from mirage.elastic.measured.search import SmallPollux
    from mirage.elastic.measured.world import (
        TEST_WORKLOADS,
        TRAINING_WORKLOADS,
        drawn_workload,
        pollux_config,
        published_workload,
    )

    config = pollux_config()
    return ElasticSetting(
        name="pollux",
        summary=(
            "Pollux's published comparison: 16 nodes of 4 T4 GPUs, rounds of 60 s, measured step"
            f" times; training draws jobs like those of workloads {TRAINING_WORKLOADS[0]} to"
            f" {TRAINING_WORKLOADS[-1]}, tests are workloads {TEST_WORKLOADS[0]} to"
            f" {TEST_WORKLOADS[-1]}"
        ),
        world=config,
        draw=partial(drawn_workload, config),
        knows_speeds=True,
        against=("tiresias", "optimus-pollux", "learnt-rule", "greedy-rule"),
        reference="tiresias",
        own_schedulers={
            "tiresias": Tiresias,
            "optimus-pollux": PolluxOptimus,
            "pollux-small": SmallPollux,
            "greedy": GreedyRounds,
            "greedy-steady": partial(GreedyRounds, name="greedy-steady", keep=0.1),
            "greedy-rule": RuleRounds,
            "learnt-rule": LearntRounds,
        },
        test=[published_workload(nth, config) for nth in TEST_WORKLOADS],
    )


SETTINGS: dict[str, Callable[[], ElasticSetting]] = {
    "small": _small,
    "small-known": _small_known,
    "large": _large,
    "large-known": _large_known,
    "pollux": _pollux,
}


def read_setting(word: str) -> ElasticSetting:
    """A setting by its name or from a TOML file. Raises InputError."""
    if word in SETTINGS:
        return SETTINGS[word]()
    path = Path(word)
    names = ", ".join(SETTINGS)
    if path.suffix != ".toml":
        raise InputError(f"no setting {word!r}; there are {names}, or give a .toml file.")
    try:
        record = parse_toml(read_text(path))
    except OSError as error:
        raise InputError(f"{path}: can't be read ({error.strerror}).") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: no TOML ({error}).") from error
    return changed(record, path)


def changed(record: Mapping[str, Any], path: Path) -> ElasticSetting:
    """The base setting with a file's changes. Raises InputError."""
    if path.stem in SETTINGS:
        raise InputError(f"{path}: {path.stem} is a setting of Mirage; give the file another name.")
    record = dict(record)
    base = record.pop("base", "small")
    if base not in SETTINGS:
        raise InputError(f"{path}: base: no setting {base!r}; there are {', '.join(SETTINGS)}.")
    setting = SETTINGS[base]()
    if "types" in record:
        setting = _with_types(setting, record.pop("types"), f"{path}: types")
    if "drawn_types" in record:
        setting = _with_drawn(setting, record.pop("drawn_types"), f"{path}: drawn_types")
    world = _with(setting.world, record.pop("world", {}), f"{path}: [world]")
    options: dict[str, Any] = {"name": path.stem, "summary": f"{base}, changed by {path.name}"}
    if "workload" in record:
        if setting.workload is None:
            raise InputError(f"{path}: [workload]: the jobs of {base!r} are given, not drawn.")
        workload = _with(setting.workload, record.pop("workload"), f"{path}: [workload]")
        options |= {"workload": workload, "draw": partial(draw, workload)}
    for name, kind in (("places", int), ("knows_speeds", bool)):
        if name in record:
            options[name] = _checked(record.pop(name), kind, f"{path}: {name}")
    if record:
        raise InputError(f"{path}: {sorted(record)[0]}: unknown key.")
    return replace(setting, world=world, **options)


def _with_types(setting: ElasticSetting, names: object, where: str) -> ElasticSetting:
    """With some of its job types. Raises InputError."""
    types = {kind.name: kind for kind in setting.world.types}
    if setting.workload is None:
        raise InputError(f"{where}: the jobs of {setting.name!r} are given, not drawn.")
    if not isinstance(names, list) or not names or any(name not in types for name in names):
        raise InputError(f"{where}: expected a list of {', '.join(types)}, got {names!r}.")
    chosen = tuple(types[name] for name in names)
    workload = replace(setting.workload, types=chosen)
    world = replace(setting.world, types=chosen)
    return replace(setting, world=world, workload=workload, draw=partial(draw, workload))


def _with_drawn(setting: ElasticSetting, count: object, where: str) -> ElasticSetting:
    """With jobs of the first ``count`` types alone. Raises InputError."""
    types = setting.world.types
    if setting.workload is None:
        raise InputError(f"{where}: the jobs of {setting.name!r} are given, not drawn.")
    if type(count) is not int or not 1 <= count <= len(types):
        raise InputError(f"{where}: expected 1 to {len(types)}, got {count!r}.")
    workload = replace(setting.workload, types=tuple(types[:count]))
    return replace(setting, workload=workload, draw=partial(draw, workload))


def _with(of: T, table: object, where: str) -> T:
    """A record with plain values changed. Raises InputError."""
    if not isinstance(table, dict):
        raise InputError(f"{where}: expected a table.")
    now = {
        item.name: getattr(of, item.name)
        for item in fields(of)
        if isinstance(getattr(of, item.name), int | float | str)
    }
    values = {}
    for name, value in table.items():
        if name not in now:
            raise InputError(f"{where}: {name}: unknown key; there are {', '.join(now)}.")
        values[name] = _checked(value, type(now[name]), f"{where}: {name}")
    try:
        return replace(of, **values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _checked(value: object, kind: type, where: str) -> Any:
    allowed: Sequence[type] = (int, float) if kind is float else (kind,)
    if type(value) not in allowed:
        raise InputError(f"{where}: expected {kind.__name__}, got {value!r}.")
    return kind(value)
