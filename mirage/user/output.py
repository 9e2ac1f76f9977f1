"""The output of a chain's links, in order, as it grows: the files that the links or Slurm name."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mirage.chain.folder import is_paused, over_marker, queued_jobs, read_starts
from mirage.errors import ClusterError
from mirage.slurm.commands import CommandCluster
from mirage.user.slurm_access import adapter_config, slurm_of

LOOK_S = 0.5
"""How often files are looked at while they grow."""
ASK_S = 15
"""How often Slurm is asked whether a job of the chain is left."""
_CHUNK = 1 << 16


@dataclass
class ChainOutput:
    """What is printed, and how far."""

    folder: Path
    only: int | None
    _read: dict[str, int] = field(default_factory=dict)
    """File -> how many bytes of it have been printed."""
    _shown: str = ""
    """Under which header the output stands now."""
    _from_slurm: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Segment -> the files that Slurm names, of a link that ran but could not write them down
    itself.
    """

    def files(self) -> Mapping[str, list[int]]:
        """File -> the links that write to it; in the order of the links."""
        found: dict[str, list[int]] = {}
        starts = read_starts(self.folder)
        names = {
            **self._from_slurm,
            **{segment: start.outputs for segment, start in starts.items()},
        }
        for segment in sorted(names):
            if self.only in (None, segment):
                for name in names[segment]:
                    found.setdefault(name, []).append(segment)
        return found

    def show(self) -> None:
        """Prints what is new in each file, under a header that names it."""
        for name, segments in self.files().items():
            if name.startswith("/dev/"):  # nothing to read, and some devices never end
                continue
            try:
                if not Path(name).is_file():
                    continue
                with Path(name).open("rb") as file:
                    size, begin = os.fstat(file.fileno()).st_size, self._read.get(name, 0)
                    if size < begin:  # a requeued link began it again
                        begin, self._shown = 0, ""
                    if name in self._read and size == begin:
                        continue
                    self._head(name, segments)
                    file.seek(begin)
                    while begin < size and (chunk := file.read(min(_CHUNK, size - begin))):
                        begin += len(chunk)
                        sys.stdout.buffer.write(chunk)
                    self._read[name] = begin
            except OSError:
                continue  # not there yet; named at the end
        sys.stdout.buffer.flush()

    def missing(self) -> Iterator[str]:
        """Which files could not be read, and why."""
        for name, segments in self.files().items():
            if name not in self._read:
                why = "nothing is kept there" if name.startswith("/dev/") else "can't be read here"
                yield f"{_whose(segments)}: {name}: {why}"

    def ask_slurm(self) -> None:
        """For the links that have no record of their start, as long as Slurm knows their jobs."""
        starts = read_starts(self.folder)
        unknown = {
            job: segment
            for segment, job in queued_jobs(self.folder).items()
            if segment not in starts
        }
        cluster = CommandCluster.from_config(adapter_config())
        with suppress(ClusterError):
            for job in cluster.jobs(list(unknown)).values():
                if job.start_s is not None:
                    self._from_slurm[unknown[job.job_id]] = cluster.output_files(job.job_id)

    def has_jobs(self, running_only: bool) -> bool:
        """Whether Slurm has a job of the chain that is not over; unknown counts as yes."""
        try:
            jobs = slurm_of(adapter_config()).jobs(list(queued_jobs(self.folder).values())[-50:])
        except ClusterError:
            return True
        left = [job for job in jobs.values() if not job.state.is_over]
        return any(job.state.has_nodes for job in left) if running_only else bool(left)

    def _head(self, name: str, segments: list[int]) -> None:
        if self._shown == name:
            return
        sys.stdout.buffer.write(
            (b"\n" if self._shown else b"") + os.fsencode(f"==> {_whose(segments)}: {name} <==\n")
        )
        self._shown = name


def _whose(segments: list[int]) -> str:
    return f"link{'s' if len(segments) > 1 else ''} {', '.join(map(str, segments))}"


def follow(chain: ChainOutput) -> None:
    """Shows what is new until the chain is over and has no job left."""
    asked_s = 0.0
    while True:
        is_over = over_marker(chain.folder) is not None
        now_s = time.monotonic()
        ends = False
        if now_s - asked_s >= (1 if is_over else ASK_S):
            asked_s = now_s
            chain.ask_slurm()
            ends = (is_over or not is_paused(chain.folder)) and not chain.has_jobs(is_over)
        chain.show()
        if ends:
            return
        time.sleep(LOOK_S)
