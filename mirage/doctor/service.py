"""Checks of Mirage's own side: what the configuration lets it do, where it writes, and whether its
model fits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

from mirage.config import ActingConfig, AdapterConfig, PolicyConfig
from mirage.daemon.drift import ADVICE, WINDOW_S, drift
from mirage.daemon.restraint import Acting
from mirage.daemon.socket import ask
from mirage.doctor.finding import Diagnosis, error, note, ok, warning
from mirage.doctor.survey import Site
from mirage.domain import ActingMode, Snapshot
from mirage.errors import AuditError, ClusterError, InputError, MirageError, StoreError
from mirage.libraries import missing_package
from mirage.models.folder import check_folder
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.episode import STEP_S
from mirage.provision.policies.learned import MOST_STEP_S, SIZES
from mirage.slurm.adapter import connect
from mirage.store.journal import read_journal
from mirage.store.places import file_in
from slurm_sim.clusters import read_cluster
from slurm_sim.config import ClusterConfig
from slurm_sim.errors import InvalidCluster

CLUSTER_TOML = "cluster.toml"
SHOWN = 4
_UNIMPORTANT = frozenset(
    {
        "bf_cycle_us",
        "limit_check_s",
        "kill_wait_s",
        "min_job_age_s",
        "requeue_delay_s",
        "batch_sched_delay_s",
    }
)
"""Of the scheduler's parameters: they move starts by seconds."""


def check_acting(site: Site, acting: Acting, config: ActingConfig) -> Iterator[Diagnosis]:
    """What the service may do."""
    if acting.mode is ActingMode.ENFORCE:
        yield ok("mode", "mode enforce: releases are carried out")
    else:
        yield note(
            "mode",
            f"mode {acting.mode.value}: nothing is acted on",
            "Chains go on by Slurm's own dependency; `mirage report` says what would have been"
            " saved.",
            'When you trust it: acting.mode = "enforce".',
        )
    if disabled := acting.disabled():
        yield warning(
            "disable-file",
            disabled.words,
            "While it is there nothing is acted on.",
            "Remove it to go on.",
        )
    if isinstance(site.live, ClusterConfig):
        known = {partition.name for partition in site.live.partitions}
        if unknown := sorted(set(config.partitions) - known):
            yield warning(
                "allow-lists",
                f"acting.partitions names {unknown[0]}, which this cluster does not have",
                "Jobs elsewhere are left alone, perhaps all.",
                f"Known: {', '.join(sorted(known))}.",
            )


def check_intake(config: ActingConfig, socket: str) -> Iterator[Diagnosis]:
    """How many new chains of a user are watched, and who has more. ``socket``: of the daemon;
    empty: there is none.
    """
    most, over = config.chains_per_user_per_hour, {}
    if socket:
        with suppress(
            OSError, ValueError, MirageError
        ):  # it does not run, or is of another release
            answer = ask(Path(socket), {"ask": "intake"})
            most, over = answer["most"], answer["over"]
    bound = (
        f"{most} new chains of a user are watched within an hour (acting.chains_per_user_per_hour)"
    )
    if over:
        yield warning(
            "chains",
            f"{bound}; not watched yet:"
            f" {', '.join(f'{count} of {user}' for user, count in sorted(over.items()))}",
            "Slurm starts each of their links after the one before ends, so they wait in the queue"
            " between links.",
            "Ask these users why; raise the bound if they need that many.",
        )
    else:
        yield ok("chains", f"{bound}; nobody is known to have more")


def check_adapter(config: AdapterConfig) -> Iterator[Diagnosis]:
    """How Slurm is asked."""
    try:
        yield ok("adapter", f"Slurm is reached by {connect(config).why}")
    except InputError as problem:
        yield error(
            "adapter",
            str(problem),
            "The service does not start.",
            'cluster.adapter = "auto" takes what works.',
        )


def check_server(store_url: str) -> Iterator[Diagnosis]:
    """Whether a store on a server answers."""
    if file_in(store_url):
        return
    # With SQLAlchemy, which a file does not need.
    from mirage.store.exclusive import is_held
    from mirage.store.url import shown

    try:
        is_held(store_url)
    except (InputError, StoreError) as problem:  # InputError: its driver is missing
        yield error(
            "store",
            str(problem),
            "What can't be written down is not acted on.",
            "Start it, or permit this user.",
        )
    else:
        yield ok("store", f"{shown(store_url)} answers")


def check_drift(audit: Path, policy: PolicyConfig) -> Iterator[Diagnosis]:
    """Whether the model still predicts the waits, as far as the audit log shows."""
    if not policy.model or not _is_there(audit):
        return
    now_s = int(time.time())
    try:
        found = drift(read_journal(audit, now_s - WINDOW_S), now_s)
    except AuditError as problem:
        yield note(
            "drift",
            str(problem),
            "Whether the model still fits is not known.",
            "Run this as the service's user.",
        )
        return
    waits = found.at_most["p50"].cases if found.at_most else 0
    if found.alarms:
        what = "; ".join(alarm.words for alarm in found.alarms)
        yield warning(
            "drift", what, "The model learnt from a cluster that was used otherwise.", ADVICE
        )
    else:
        yield ok(
            "drift", f"no sign in {waits} real waits of four weeks that the model no longer fits"
        )


def check_waits(folder: Path) -> Iterator[Diagnosis]:
    """What the nights learnt of waits: which rule answers, and whether its range still holds."""
    if not _is_there(folder):
        missing = [name for name in ("pandas", "xgboost") if find_spec(name) is None]
        words = "nothing is learnt of waits yet: like jobs answer `mirage when`"
        if missing:
            yield note("waits", words, "The nights can't learn.", missing_package(missing[0]))
        else:
            yield ok("waits", words)
        return
    # With numpy, which takes its time to import.
    from mirage.provision.starts.learned_folder import read_learned, told

    try:
        learned = read_learned(folder)[0]
    except InputError as problem:
        yield warning("waits", str(problem), "`mirage when` fails.", "The next night mends it.")
        return
    words = ". ".join(told(learned))
    if learned.has_drifted or (learned.planned and learned.planned.has_drifted):
        yield warning(
            "waits",
            words,
            "Jobs wait otherwise than in the last weeks.",
            "Ranges are half as wide again until the nights have learnt it.",
        )
    else:
        yield ok("waits", words)


def check_files(files: Mapping[str, Path]) -> Iterator[Diagnosis]:
    """Whether store and audit log can be written by who runs this."""
    for check, path in files.items():
        folder = next(parent for parent in path.absolute().parents if _is_there(parent))
        target = path if _is_there(path) else folder
        if os.access(target, os.W_OK) and os.access(folder, os.W_OK | os.X_OK):
            yield ok(check, f"{path} can be written")
        else:
            yield error(
                check,
                f"{path} can't be written by this user",
                "What can't be written down is not acted on.",
                f"install -d -o USER -m 0700 {path.parent} for the user that the service runs as,"
                " or run this as them.",
            )


def _is_there(path: Path) -> bool:
    """False also where this user may not look."""
    try:
        return path.exists()
    except PermissionError:
        return False


def check_model(site: Site, policy: PolicyConfig, poll_s: int) -> Iterator[Diagnosis]:
    """Whether the policy's model can be read, is one of this cluster, and is asked often enough."""
    if not policy.model:
        yield ok("model", f"policy {policy.name} needs no model")
        return
    folder = Path(policy.model)
    try:
        recipe = check_folder(folder, system=ProvisionAbout.SYSTEM, method=policy.name)
        about = ProvisionAbout.of(recipe, folder)
    except InputError as problem:
        yield error(
            "model",
            str(problem),
            "The service does not start.",
            "Set policy.model to a model that is whole.",
        )
        return
    yield ok(
        "model",
        f"{folder}: whole, trained for {about.cluster} {about.pool} with {about.nodes} nodes",
    )
    yield _poll(poll_s)
    if isinstance(site.snapshot, Snapshot):
        yield _fit(about, site.snapshot)
    own = folder.resolve() / CLUSTER_TOML
    yield _description(own if own.is_file() else own.parent.parent / CLUSTER_TOML, about, site.live)


def _poll(poll_s: int) -> Diagnosis:
    what = f"a cycle comes every {poll_s} s; a model sees the last 24 h in steps of {STEP_S} s"
    if poll_s <= MOST_STEP_S:
        return ok("model-poll", what)
    return error(
        "model-poll",
        what,
        "It is never asked: every decision falls back to like jobs ([incomplete] in reasons).",
        f"Set daemon.poll_s to {MOST_STEP_S} or less, best to {STEP_S}.",
    )


def _fit(about: ProvisionAbout, snapshot: Snapshot) -> Diagnosis:
    pools = snapshot.pools
    if about.pool and about.pool not in pools.values():
        return error(
            "model-fit",
            f"the model is of the pool {about.pool}; this cluster has"
            f" {', '.join(sorted(set(pools.values())))}",
            "It is never asked: every decision falls back to the untrained quantile"
            " ([other-cluster] in reasons).",
            "Train one from this cluster's history (docs/learning.md).",
        )
    partitions = {partition for partition, pool in pools.items() if about.pool in ("", pool)}
    up = sum(node.up and bool(partitions & set(node.partitions)) for node in snapshot.nodes)
    least, most = (round(factor * about.nodes) for factor in SIZES)
    if not least <= up <= most:
        return error(
            "model-fit",
            f"{up} nodes of the pool are up; the model is of {about.nodes} and answers for {least}"
            f" to {most}",
            "Every decision falls back to the untrained quantile ([other-cluster] in reasons).",
            "Train one from this cluster's history (docs/learning.md).",
        )
    return ok("model-fit", f"{up} nodes of the pool are up, as the model expects")


def _description(
    path: Path, about: ProvisionAbout, live: ClusterConfig | ClusterError
) -> Diagnosis:
    if not path.is_file():
        return note(
            "cluster-toml",
            f"no {path}",
            "What the model was trained on can't be compared with this cluster.",
        )
    if isinstance(live, ClusterError):
        return warning(
            "cluster-toml",
            f"the live cluster is not known: {live}",
            "It can't be compared.",
            "See the words above.",
        )
    try:
        described = read_cluster(path).cluster
    except InvalidCluster as problem:
        return error(
            "cluster-toml", str(problem), "Forecasts simulate this cluster.", "Mend the file."
        )
    differences = differences_of(described, live, about.pool)
    if not differences:
        return ok("cluster-toml", f"{path} describes this cluster")
    more = f" and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
    return warning(
        "cluster-toml",
        f"{path} differs from this cluster: {'; '.join(differences[:SHOWN])}{more}",
        "The model learnt, and forecasts simulate, a cluster that schedules differently.",
        "Describe this one (slurm-sim cluster) and train again, if the difference is meant to"
        " last.",
    )


def differences_of(described: ClusterConfig, live: ClusterConfig, pool: str) -> list[str]:
    """What of two clusters is not the same and matters: partitions of the pool, and the scheduler's
    parameters.
    """
    found = []
    there = {partition.name: partition for partition in live.partitions}
    for partition in described.partitions:
        other = there.get(partition.name)
        if other is None:
            found += [f"no partition {partition.name} here"]
            continue
        if len(other.nodes) != len(partition.nodes):
            found.append(
                f"{partition.name} has {len(other.nodes)} nodes here, {len(partition.nodes)} there"
            )
        if strange := sorted(set(other.nodes) - set(partition.nodes)):
            found.append(f"{partition.name} has nodes here that are unknown there, as {strange[0]}")
        if other.max_time_s != partition.max_time_s:
            found.append(
                f"{partition.name}: MaxTime {other.max_time_s} s here, {partition.max_time_s} s"
                " there"
            )
    if pool and pool not in {partition.name for partition in described.partitions}:
        found.append(f"it does not describe the model's pool {pool}")
    for field in fields(described.params):
        mine, theirs = getattr(live.params, field.name), getattr(described.params, field.name)
        if mine != theirs and field.name not in _UNIMPORTANT:
            found.append(f"{field.name} is {_shown(mine)} here, {_shown(theirs)} there")
    return found


def _shown(value: object) -> object:
    return getattr(value, "value", value)
