"""QOS and associations from the accounting database, as `sacctmgr -P show qos` and `... show assoc`
print them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slurm_sim.clusters.notes import Entry, Note
from slurm_sim.clusters.values import fraction, integer, limit_s
from slurm_sim.config import ROOT, Association, Qos
from slurm_sim.errors import InvalidCluster
from slurm_sim.ranges import MOST, MOST_WEIGHT

NORMAL = "normal"
"""The QOS of jobs that name none, if it is there."""
HARMLESS = {"gracetime": "00:00:00", "preemptmode": "cluster", "preemptexempttime": ""}
Row = dict[str, Entry]
"""By the column's name in lower case, without what is empty."""

QOS_COUNTS = {
    "priority": "priority",
    "maxjobspu": "max_jobs_per_user",
    "maxjobsperuser": "max_jobs_per_user",
    "maxsubmitpu": "max_submit_jobs_per_user",
    "maxsubmitjobspu": "max_submit_jobs_per_user",
    "maxsubmitjobsperuser": "max_submit_jobs_per_user",
    "maxjobspa": "max_jobs_per_account",
    "maxjobsperaccount": "max_jobs_per_account",
    "maxsubmitpa": "max_submit_jobs_per_account",
    "maxsubmitjobspa": "max_submit_jobs_per_account",
    "maxsubmitjobsperaccount": "max_submit_jobs_per_account",
    "grpjobs": "grp_jobs",
}
QOS_RESOURCES = {
    "maxtrespu": "max_{}_per_user",
    "maxtresperuser": "max_{}_per_user",
    "maxtrespa": "max_{}_per_account",
    "maxtresperaccount": "max_{}_per_account",
    "grptres": "grp_{}",
}
LIMITS = ("limits", "safe", "all")
"""With one of these in AccountingStorageEnforce the limits of QOS and associations hold."""
RESOURCES = {"node": "nodes", "cpu": "cpus", "gres/gpu": "gpus"}


@dataclass(frozen=True)
class Accounting:
    """What the database says, for one cluster."""

    qos: tuple[Qos, ...] | None
    """None: not asked."""
    associations: tuple[Association, ...]
    notes: tuple[Note, ...]

    def enforced(self, enforce: Entry) -> Accounting:
        """What slurmctld follows with this AccountingStorageEnforce: limits only if it has `LIMITS`
        in it.
        """
        if any(word in LIMITS for word in enforce.value.lower().split(",")):
            return self
        if self.qos is None and not self.associations:
            return self
        why = (
            "without limits in it slurmctld enforces no limits of QOS and associations; they are"
            " left out"
        )
        return dataclasses.replace(
            self._without_limits(), notes=(*self.notes, enforce.no_effect(why))
        )

    def _without_limits(self) -> Accounting:
        """Shares, priorities and usage factors still count."""
        qos = None
        if self.qos is not None:
            qos = tuple(
                Qos(item.name, item.priority, usage_factor=item.usage_factor) for item in self.qos
            )
        associations = tuple(
            Association(item.account, item.user, item.parent, item.shares)
            for item in self.associations
        )
        return dataclasses.replace(self, qos=qos, associations=associations)


def read_accounting(qos_text: str | None, assoc_text: str | None, cluster: str) -> Accounting:
    """Both tables, each None if it was not asked for. Raises InvalidCluster."""
    notes: list[Note] = []
    qos = None if qos_text is None else _qos(qos_text, notes)
    associations = () if assoc_text is None else _associations(assoc_text, cluster, notes)
    return Accounting(qos, associations, tuple(notes))


def _rows(text: str, source: str, needed: str) -> Iterator[Row]:
    lines = [
        (number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()
    ]
    header = lines[0][1].split("|") if lines else []
    if needed not in [column.lower() for column in header]:
        found = lines[0][1] if lines else "nothing"
        raise InvalidCluster(
            f"{source}:1: found {found!r}; give the output of `{source} -P`, with its header"
        )
    for number, line in lines[1:]:
        values = line.split("|")
        if len(values) != len(header):
            raise InvalidCluster(
                f"{source}:{number}: {len(values)} columns; its header has {len(header)}"
            )
        entries = [
            Entry(key, value, f"{source}:{number}")
            for key, value in zip(header, values, strict=True)
        ]
        # `tree` indents accounts: those blanks are kept.
        yield {
            entry.key.lower().replace(" ", ""): entry for entry in entries if entry.value.strip()
        }


# ---- QOS


def _qos(text: str, notes: list[Note]) -> tuple[Qos, ...]:
    found = [_one_qos(row, notes) for row in _rows(text, "sacctmgr show qos", "name")]
    if not found:
        raise InvalidCluster(
            "sacctmgr show qos:1: no QOS after the header; there is at least normal"
        )
    return tuple(sorted(found, key=lambda qos: qos.name != NORMAL))


def _one_qos(row: Row, notes: list[Note]) -> Qos:
    values: dict[str, int | float | None] = {}
    for column, entry in row.items():
        if column in QOS_COUNTS:
            values[QOS_COUNTS[column]] = integer(
                entry, 0, MOST_WEIGHT if column == "priority" else MOST
            )
        elif column in QOS_RESOURCES:
            values |= _resources(entry, QOS_RESOURCES[column], notes)
        elif column == "usagefactor":
            values["usage_factor"] = fraction(entry, MOST_WEIGHT)
        elif column == "maxwall":
            values["max_wall_s"] = limit_s(entry)
        elif column != "name" and entry.value != HARMLESS.get(column):
            notes.append(
                entry.not_simulated(
                    f"of QOS {row['name'].value}: it is not enforced or followed here"
                )
            )
    return Qos(row["name"].value, **values)  # type: ignore[arg-type]


def _resources(entry: Entry, pattern: str, notes: list[Note]) -> dict[str, int]:
    """``cpu=16,gres/gpu=4,node=2``."""
    limits = {}
    for item in entry.value.split(","):
        name, _, value = item.partition("=")
        if name in RESOURCES:
            limits[pattern.format(RESOURCES[name])] = integer(
                Entry(f"{entry.key} {name}", value, entry.where)
            )
        else:
            notes.append(
                entry.not_simulated(f"only cpu, node and gres/gpu are limited, not {name}")
            )
    return limits


# ---- associations

ASSOCIATION_COUNTS = {"maxjobs": "max_jobs", "grpjobs": "grp_jobs"}
ASSOCIATION_USED = (
    "cluster",
    "account",
    "user",
    "parentname",
    "parname",
    "share",
    "fairshare",
    "qos",
)


def _associations(text: str, cluster: str, notes: list[Note]) -> tuple[Association, ...]:
    rows = [row for row in _rows(text, "sacctmgr show assoc", "account") if _is_of(row, cluster)]
    parents = _indented_parents(rows)
    if all(parent == ROOT for parent in parents) and not any(_parent_column(row) for row in rows):
        accounts = [
            row["account"]
            for row in rows
            if "user" not in row and row["account"].value.strip() != ROOT
        ]
        notes += [account.not_simulated(_PARENTS) for account in accounts[:1]]
    return tuple(
        _association(row, parent, notes)
        for row, parent in zip(rows, parents, strict=True)
        if _is_wanted(row, notes)
    )


_PARENTS = (
    "the table has no ParentName, so all accounts are taken to be under root; add `tree`, or the"
    " column"
)


def _is_of(row: Mapping[str, Entry], cluster: str) -> bool:
    return "account" in row and (
        "cluster" not in row or row["cluster"].value.lower() == cluster.lower()
    )


def _is_wanted(row: Row, notes: list[Note]) -> bool:
    if "partition" in row:
        notes.append(
            row["partition"].not_simulated("left out: an association holds in all partitions")
        )
        return False
    limited = any(column in row for column in (*ASSOCIATION_COUNTS, "grptres"))
    return "user" in row or limited or row["account"].value.strip() != ROOT


def _parent_column(row: Row) -> str | None:
    entry = row.get("parentname") or row.get("parname")
    return entry.value if entry else None


def _indented_parents(rows: list[Row]) -> list[str]:
    """The account above each row's, by its indentation (`tree`)."""
    above: list[tuple[int, str]] = []
    parents = []
    for row in rows:
        account = row["account"].value
        depth = len(account) - len(account.lstrip())
        while above and above[-1][0] >= depth:
            above.pop()
        parents.append(above[-1][1] if above else ROOT)
        if "user" not in row:
            above.append((depth, account.strip()))
    return parents


def _association(row: Row, parent: str, notes: list[Note]) -> Association:
    limits: dict[str, int] = {}
    for column, entry in row.items():
        if column in ASSOCIATION_COUNTS:
            limits[ASSOCIATION_COUNTS[column]] = integer(entry)
        elif column == "grptres":
            limits |= _resources(entry, QOS_RESOURCES["grptres"], notes)
        elif column not in ASSOCIATION_USED:
            notes.append(
                entry.not_simulated(f"of account {row['account'].value.strip()}: not enforced here")
            )
    user = row["user"].value if "user" in row else None
    return Association(
        row["account"].value.strip(),
        user,
        parent=(_parent_column(row) or parent) if user is None else ROOT,
        shares=_shares(row.get("share") or row.get("fairshare"), notes),
        **limits,
    )


def _shares(entry: Entry | None, notes: list[Note]) -> int:
    if entry is None:
        return 1
    if entry.value.lower() == "parent":
        notes.append(
            entry.not_simulated("taken as one share; fair share is not passed on from the account")
        )
        return 1
    return integer(entry)
