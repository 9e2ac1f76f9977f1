"""In which partitions, accounts and QOS a user may submit: `scontrol show partition`, and the user's
associations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mirage.slurm.survey import JobLimits

_LISTS = ("AllowAccounts", "DenyAccounts", "AllowQos", "DenyQos")


@dataclass(frozen=True, kw_only=True)
class Entitlement:
    """Where a job may be submitted, and how its use is weighed."""

    partition: str
    account: str
    qos: str
    """Empty: accounting has none, as with the account."""


def partition_rules(text: str) -> dict[str, dict[str, str]]:
    """Partition -> its fields, from `scontrol show partition -o`."""
    rows = [
        dict(word.split("=", 1) for word in line.split() if "=" in word)
        for line in text.splitlines()
    ]
    return {row["PartitionName"]: row for row in rows if "PartitionName" in row}


def entries(
    rules: Mapping[str, Mapping[str, str]], associations: Sequence[JobLimits]
) -> Iterator[Entitlement]:
    """All that Slurm lets in by accounts, QOS and the partitions' states; groups and users' lists are
    not looked at.
    """
    pairs = [
        (each.account, qos, each.partition) for each in associations for qos in each.qos.split(",")
    ] or [("", "", "")]
    for name, rule in rules.items():
        if rule.get("State", "UP") != "UP" or rule.get("Hidden") == "YES":
            continue
        for account, qos, only in pairs:
            if only in ("", name) and _lets_in(rule, account, qos):
                yield Entitlement(partition=name, account=account, qos=qos)


def _lets_in(rule: Mapping[str, str], account: str, qos: str) -> bool:
    allowed, denied, allowed_qos, denied_qos = (_list(rule.get(name, "")) for name in _LISTS)
    return (
        (not allowed or account in allowed)
        and account not in denied
        and (not allowed_qos or qos in allowed_qos)
        and qos not in denied_qos
    )


def _list(text: str) -> Collection[str]:
    return () if text in ("", "ALL", "N/A", "NONE", "(null)") else text.split(",")
