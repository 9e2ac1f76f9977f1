"""`mirage agent`: the same loop as a plain user, for that user's own chains. Needs no rights and no
configuration.
"""

from __future__ import annotations

import argparse
import logging
from dataclasses import dataclass, field

from mirage.chain.folder import chain_folder, is_paused, over_marker, refused_link
from mirage.cli import serve
from mirage.config_sources import user_file
from mirage.daemon.observers import Observer
from mirage.daemon.restraint import Acting, acting_from
from mirage.domain import ActingMode
from mirage.errors import MirageError
from mirage.peers import Sparingly
from mirage.user.folders import chain_ids
from mirage.user.service_check import agent_folder, default_agent_store
from mirage.user.sources import me
from mirage.user.steering import Steering, links

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    serve.add_arguments(parser, "~/.config/mirage/mirage.toml", ActingMode.ENFORCE)


def run(args: argparse.Namespace) -> int:
    loaded = serve.configured(args, user_file(), default_agent_store())
    acting = acting_from(loaded.config.acting, ActingMode.ENFORCE, agent_folder() / "disabled")
    journal = serve.journal_from(loaded.config, default_agent_store())
    queuer = (QueuesRefused(acting),)
    return serve.run(args, loaded, acting, journal, only_user=me(), socket="", observers=queuer)


@dataclass(frozen=True)
class QueuesRefused(Observer):
    """Queues the links that the chains' own jobs could not queue: where jobs may not submit, or
    once a queue that was full takes jobs again.
    """

    acting: Acting
    sparingly: Sparingly = field(default_factory=lambda: Sparingly(3600))

    def cycle_ended(self, succeeded: bool, seconds: float, now_s: int) -> None:  # noqa: ARG002
        """After a cycle that failed Slurm may be away."""
        if not succeeded or self.acting.mode is not ActingMode.ENFORCE or self.acting.disabled():
            return
        for chain in chain_ids(None):
            folder = chain_folder(chain)
            if refused_link(folder) and not over_marker(folder) and not is_paused(folder):
                self._queue(chain, now_s)

    def _queue(self, chain: str, now_s: int) -> None:
        try:
            queued = Steering.of(chain).go_on()
        except MirageError as error:
            if self.sparingly.may(chain, now_s):
                log.warning("chain %s: the next link can't be queued here either: %s", chain, error)
            return
        if queued:
            log.info("chain %s: its own job could not queue %s: done here", chain, links(queued))
