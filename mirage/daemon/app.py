"""The composition root: `mirage daemon` and `mirage agent` are put together here, and run."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.chain.folder import chains_folder
from mirage.config import Config, DaemonConfig
from mirage.daemon import logs, reload
from mirage.daemon.anywhere import Anywhere
from mirage.daemon.audit import Audit
from mirage.daemon.audit_summary import AuditSummary
from mirage.daemon.chain_quota import ChainQuota
from mirage.daemon.cycle import Daemon
from mirage.daemon.cycle_guard import CycleGuard
from mirage.daemon.dismissed import Dismissed
from mirage.daemon.drift_alarm import DriftAlarm
from mirage.daemon.last_cycle import LastCycle
from mirage.daemon.metrics import Metrics, exposed
from mirage.daemon.observers import AgreementLog, Observer, RoutingTable
from mirage.daemon.pace import NewChains
from mirage.daemon.restraint import Acting
from mirage.daemon.scheduler import run_forever
from mirage.daemon.socket import Door, Source, serving
from mirage.daemon.waits import LEARNT, QueueLogs
from mirage.daemon.wall_clock import WallClock
from mirage.errors import StoreInUse
from mirage.peers import allow_files
from mirage.ports import Cluster, Policy
from mirage.provision.policies.by_mode import words_of
from mirage.provision.policies.heuristics import Reactive, Timer
from mirage.provision.policies.registry import make_policy
from mirage.provision.policies.reloading import Reloading
from mirage.provision.starts.finish import read_speeds
from mirage.provision.starts.learnt import Learnt
from mirage.slurm.adapter import connect
from mirage.slurm.commands import CommandCluster
from mirage.slurm.resources import read_node_use
from mirage.slurm.runner import Runner
from mirage.store.exclusive import exclusive
from mirage.store.journal import Journal
from mirage.store.places import file_in, note_look, once_file
from mirage.store.repository import SqlStore

if TYPE_CHECKING:  # numpy takes its time to import
    from mirage.provision.starts.walk import NightlyWaits

log = logging.getLogger(__name__)

OpenPage = Callable[[DaemonConfig, LastCycle, AuditSummary], AbstractContextManager[Door]]
"""Serves the web page while its context lasts; gives what makes links to it."""


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """What a service is built from."""

    config: Config
    acting: Acting
    journal: Journal
    """The audit log."""
    only_user: str | None
    """Whose chains the service acts on; None: all users'."""
    socket: str
    """Where users ask about their chains; empty: nowhere."""
    open_page: OpenPage | None
    """None: no web page."""
    once: bool
    """One cycle only, and nothing listens."""
    observers: tuple[Observer, ...] = ()
    """More of them."""


def serve(options: ServiceOptions) -> bool:
    """Runs cycles until the process is told to stop. False: the only cycle, of ``once``, failed.

    Raises MirageError if the service can't start.
    """
    if options.once:
        return _serve_once(options)
    logs.set_up(options.config.daemon.log_level)
    allow_files()
    with contextlib.ExitStack() as stack:
        service = _Service(options, stack)
        service.listen()
        service.log_start()
        calm_collector()
        # Where a terminal hangs up, that ends the service, as it does other programs.
        may_reload = None if os.isatty(0) else reload.is_good
        is_due = NewChains(chains_folder()) if options.only_user is not None else None
        must_reload = run_forever(service.guard.run, service.poll_s, may_reload, is_due)
        log.info("starting again" if must_reload else "stopped")
    if must_reload:
        reload.begin()
    return True


def _serve_once(options: ServiceOptions) -> bool:
    """One cycle. An agent's is as cron wants it: it says nothing where all went well, and has
    nothing to do while another agent of its user is at work.
    """
    level, is_agent = options.config.daemon.log_level, options.only_user is not None
    show_log = logs.set_up_for_cron(level) if is_agent else logs.set_up(level).flush
    allow_files()
    try:
        with contextlib.ExitStack() as stack:
            done = _Service(options, stack).run_once()
    except StoreInUse as error:
        if not is_agent:
            raise
        log.info("nothing to do: %s", error)
        return True
    if not done:
        show_log()
    return done


def calm_collector() -> None:
    """Python's collector leaves out what is loaded by now, and does not count the jobs of each cycle:
    they are in no circles.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


class _Service:
    """The parts of one service. ``stack`` closes all that they open."""

    def __init__(self, options: ServiceOptions, stack: contextlib.ExitStack) -> None:
        """Takes the store. Raises MirageError."""
        self._options = options
        self._config = options.config
        self._stack = stack
        # In this order: a wrong policy, a missing Slurm and a store in use each have their error
        # before anything is changed.
        self._policy = self._made_policy()
        self._cluster = self._connected()
        self._ensure_exclusive = stack.enter_context(exclusive(self._config.daemon.store))
        self._store = stack.enter_context(SqlStore.open(self._config.daemon.store))
        self._quota = ChainQuota(options.acting.chains_per_user_per_hour)
        self._daemon = self._made_daemon()
        self.guard = CycleGuard(
            self._daemon,
            self._store,
            WallClock(),
            self._config.retention,
            ensure_exclusive=self._ensure_exclusive,
            observers=self._observers,
            drift_alarm=self._drift_alarm,
        )

    def run_once(self) -> bool:
        """One cycle, nothing listens. False: it failed."""
        begun_s = WallClock().now_s()
        succeeded = self.guard.run()
        released = [
            link
            for link in self._store.open_links()
            if link.released_s is not None and link.released_s >= begun_s
        ]
        log.info(
            "one cycle: %s; %d chains are under way, %d links let into the queue",
            "done" if succeeded else "failed",
            len(self._store.active_chains()),
            len(released),
        )
        if succeeded and (file := file_in(self._config.daemon.store)):
            note_look(once_file(file))
        return succeeded

    def poll_s(self) -> int:
        """Seconds until the next cycle."""
        return self._daemon.poll_s

    def listen(self) -> None:
        """Opens page, socket and metrics port. Raises InputError."""
        config, door = self._config.daemon, None
        if self._options.open_page and self._last_cycle:
            page = self._options.open_page(config, self._last_cycle, self._audit_summary)
            door = self._stack.enter_context(page)
        if self._options.socket:
            alarm = self._drift_alarm
            source = Source(
                store=self._store,
                notice=lambda: " ".join(
                    filter(None, (alarm.words if alarm else "", self._agreement.words))
                ),
                door=door,
                quota=self._quota,
                dismissed=self._dismissed,
                queue_read_s=lambda: self._daemon.queue_read_s,
                poll_s=config.poll_s,
                better_sizes=self._daemon.better_sizes,
            )
            self._stack.enter_context(serving(Path(self._options.socket), source))
        if self._metrics:
            self._stack.enter_context(exposed(self._metrics, config.metrics, config.hosts))

    def log_start(self) -> None:
        policy, config = self._policy, self._config.daemon
        model = (
            f" (model {policy.model['folder']}, version {policy.model['version']})"
            if isinstance(policy, Reloading)
            else ""
        )
        log.info(
            "started: mode %s, policy %s, a cycle every %d s%s, store %s, socket %s",
            self._options.acting.mode.value,
            words_of(policy) + model,
            config.poll_s,
            " (more often for short links)" if self._options.only_user is not None else "",
            self._store.where,
            self._options.socket or "none",
        )

    def _made_policy(self) -> Policy:
        config = self._config.policy
        return Reloading(config) if config.model else make_policy(config)

    def _connected(self) -> Cluster:
        adapter = connect(self._config.cluster)
        log.info("Slurm is reached by %s", adapter.why)
        return adapter.cluster

    def _made_daemon(self) -> Daemon:
        return Daemon(
            self._cluster,
            self._store,
            WallClock(),
            self._policy,
            poll_s=self._config.daemon.poll_s,
            acting=self._options.acting,
            only_user=self._options.only_user,
            baselines=(Reactive(), Timer(self._config.policy.timer.lead_s)),
            observers=self._observers,
            quota=self._quota,
        )

    @cached_property
    def _observers(self) -> tuple[Observer, ...]:
        policy = self._policy
        audit = Audit(
            self._options.journal,
            self._options.acting.mode,
            lambda: policy.model if isinstance(policy, Reloading) else None,
        )
        table = routing_table(self._config, self._learnt.waits)
        some = (
            table,
            self._anywhere,
            self._metrics,
            self._last_cycle,
            self._agreement,
            audit,
            self._waits,
        )
        mine = (observer for observer in some if observer is not None)
        return (*mine, *self._options.observers)

    @cached_property
    def _anywhere(self) -> Anywhere | None:
        if not self._config.routing.speeds:
            return None
        runner = _runner(self._config)
        cluster = CommandCluster(runner)
        return Anywhere(
            speeds=read_speeds(Path(self._config.routing.speeds)),
            nodes=lambda: read_node_use(runner),
            accounting=cluster.accounting,
            set_partition=cluster.set_partition,
            learned=self._learnt.waits,
        )

    @cached_property
    def _learnt(self) -> Learnt:
        """Its own, else that of the site's service."""
        places = (self._options.journal.path.parent, Path(DaemonConfig.socket).parent)
        return Learnt(folders=[each / LEARNT for each in places], warn=log.warning)

    @cached_property
    def _waits(self) -> QueueLogs | None:
        """A user's agent leaves it to the site's service where there is one."""
        published = Path(DaemonConfig.socket).parent / LEARNT
        is_agent = self._options.only_user is not None
        if self._options.once or (is_agent and published.is_dir()):
            return None
        state = self._options.journal.path.parent
        socket = self._options.socket
        return QueueLogs(
            state=state,
            published=Path(socket).parent / LEARNT if socket else None,
            cluster=self._config.cluster,
        )

    @cached_property
    def _agreement(self) -> AgreementLog:
        return AgreementLog(looks=1 if self._options.once else 2)

    @cached_property
    def _metrics(self) -> Metrics | None:
        if self._options.once or not self._config.daemon.metrics:
            return None
        return Metrics(self._options.acting.mode.value, self._policy.name)

    @cached_property
    def _last_cycle(self) -> LastCycle | None:
        if self._options.once or not self._options.open_page:
            return None
        return LastCycle(
            acting=self._options.acting,
            policy=words_of(self._policy),
            poll_s=self._config.daemon.poll_s,
            dismissed=self._dismissed,
            agreement=self._agreement,
        )

    @cached_property
    def _dismissed(self) -> Dismissed:
        return Dismissed(file=self._options.journal.path.parent / "dismissed.json")

    @cached_property
    def _audit_summary(self) -> AuditSummary:
        summary = AuditSummary(self._options.journal.path, self._config.policy.timer.lead_s)
        return self._stack.enter_context(contextlib.closing(summary))

    @cached_property
    def _drift_alarm(self) -> DriftAlarm | None:
        if self._options.once or not isinstance(self._policy, Reloading):
            return None
        return DriftAlarm(self._audit_summary, self._observers)


def routing_table(
    config: Config, learned: Callable[[], NightlyWaits | None] = lambda: None
) -> RoutingTable | None:
    """What gives the job_submit plugin each cycle's state; None: no routing is configured.
    ``learned``: what the nights learnt of waits. Raises InputError.
    """
    if not (config.routing.model or config.routing.partitions):
        return None
    from mirage.routing.publish import Publisher, agents_of
    from mirage.slurm.survey import Survey

    routing, runner = config.routing, _runner(config)
    publisher = Publisher(
        partitions=tuple(filter(None, routing.partitions.split(","))),
        agents=agents_of(routing.model),
        run=Path(routing.run),
        runner=runner,
        valid_s=state_valid_s(config),
        accounting=CommandCluster(runner).accounting,
        learned=learned,
        describe=Survey(runner).cluster,
    )
    return RoutingTable(publisher.publish)


def _runner(config: Config) -> Runner:
    return Runner(bin_dir=config.cluster.bin_dir, timeout_s=config.cluster.timeout_s)


def state_valid_s(config: Config) -> int:
    """How long the plugin trusts a published state."""
    return config.routing.valid_s or 2 * config.daemon.poll_s + 60
