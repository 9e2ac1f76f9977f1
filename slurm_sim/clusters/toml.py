"""A cluster as a TOML that people read and write (`docs/clusters.md`): the fields of
`slurm_sim.config`, by name.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import json
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from slurm_sim.clusters.accounts import check_accounts
from slurm_sim.clusters.notes import ClusterDescription, Note, NoteKind
from slurm_sim.clusters.scheduler import why_ignored
from slurm_sim.clusters.values import compress_hosts, expand_hosts, parse_time_s
from slurm_sim.config import (
    YEAR_S,
    Association,
    ClusterConfig,
    NodeChange,
    NodeSpec,
    Params,
    Partition,
    Qos,
    Reservation,
)
from slurm_sim.errors import InvalidCluster
from slurm_sim.files import read_text
from slurm_sim.formats import parse_toml
from slurm_sim.ranges import MOST_NODES

ALL = "ALL"
TABLES: dict[str, type] = {
    "nodes": NodeSpec,
    "partitions": Partition,
    "qos": Qos,
    "associations": Association,
    "reservations": Reservation,
    "node_changes": NodeChange,
}
HEAD: dict[str, type] = {"name": str, "scheduler_is_assumed": bool}
"""Keys of the table [cluster]."""
HOSTS = "a list of nodes such as n[1-16]"
COUNT = "count"
NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
Table = dict[str, Any]


class _Wrong(ValueError):
    """What is expected, in words; the caller knows where."""


def read_toml(path: Path) -> ClusterDescription:
    """The cluster; an unknown key is an error. Raises InvalidCluster with the key's path."""
    try:
        data = parse_toml(read_text(path))
    except OSError as error:
        raise InvalidCluster(f"{path}: {error.strerror}; give a cluster that can be read") from None
    except UnicodeDecodeError as error:
        raise InvalidCluster(
            f"{path}: not UTF-8 text at byte {error.start}; save it as UTF-8"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidCluster(f"{path}: not TOML: {error}") from None
    cluster = _Reader(path).cluster(data)
    check_accounts(cluster.associations, f"{path}: ")
    given = {key: getattr(cluster.params, key) for key in data.get("scheduler", {})}
    ignored = {
        key: why for key, value in given.items() if (why := why_ignored(cluster.params, key, value))
    }
    return ClusterDescription(
        cluster,
        tuple(
            Note(NoteKind.IGNORED, key, str(given[key]), f"{path}: scheduler", why)
            for key, why in ignored.items()
        ),
    )


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path

    def cluster(self, data: Table) -> ClusterConfig:
        self._known_keys(data, ("cluster", "scheduler", *TABLES), "")
        head, scheduler = self._table(data, "cluster"), self._table(data, "scheduler")
        self._known_keys(head, HEAD, "cluster.")
        nodes = self._nodes(data)
        rest = {
            name: self._list(data, name, [node.name for node in nodes])
            for name in TABLES
            if name != "nodes"
        }
        arguments: Table = {name: values for name, values in rest.items() if values or name in data}
        arguments |= {
            key: self._value(value, HEAD[key], f"cluster.{key}") for key, value in head.items()
        }
        params = self._make(Params, scheduler, "scheduler")
        return typing.cast(
            ClusterConfig, self._build(ClusterConfig, "", nodes=nodes, params=params, **arguments)
        )

    def _nodes(self, data: Table) -> tuple[NodeSpec, ...]:
        nodes: list[NodeSpec] = []
        for where, table in self._tables(data, "nodes"):
            self._known_keys(table, (COUNT, *_fields(NodeSpec)), f"{where}.")
            names = self._node_names(table, where)
            rest = {key: value for key, value in table.items() if key not in ("name", COUNT)}
            nodes += [self._make(NodeSpec, {**rest, "name": name}, where) for name in names]
        return tuple(nodes)

    def _node_names(self, table: Table, where: str) -> tuple[str, ...]:
        """``name = "n[1-76]"``, or ``name = "n"`` with ``count = 76``."""
        names = self._hosts(table.get("name"), f"{where}.name")
        if COUNT not in table:
            return names
        count = self._value(table[COUNT], int, f"{where}.{COUNT}")
        if len(names) != 1 or not 1 <= count <= MOST_NODES:
            raise self._error(
                f"{where}.{COUNT}",
                f"a number from 1 to {MOST_NODES:,}, and as name the part before it",
            )
        return tuple(f"{names[0]}{number}" for number in range(1, count + 1))

    def _list(self, data: Table, name: str, nodes: list[str]) -> tuple[Any, ...]:
        made: list[Any] = []
        for where, table in self._tables(data, name):
            if name == "node_changes" and "node" in table:
                several = self._hosts(table["node"], f"{where}.node")
                made += [self._make(NodeChange, {**table, "node": node}, where) for node in several]
                continue
            if "nodes" in table and name in ("partitions", "reservations"):
                listed = (
                    nodes
                    if table["nodes"] == ALL
                    else self._hosts(table["nodes"], f"{where}.nodes")
                )
                table = {**table, "nodes": list(listed)}
            made.append(self._make(TABLES[name], table, where))
        return tuple(made)

    def _tables(self, data: Table, name: str) -> Iterable[tuple[str, Table]]:
        tables = data.get(name, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self._error(name, f"tables [[{name}]]")
        return [(f"{name}[{number}]", table) for number, table in enumerate(tables)]

    def _table(self, data: Table, name: str) -> Table:
        table = data.get(name, {})
        if not isinstance(table, dict):
            raise self._error(name, f"one table [{name}]")
        return table

    def _hosts(self, value: object, where: str) -> tuple[str, ...]:
        """A string such as ``n[1-3],x``, or several in a list."""
        parts = value if isinstance(value, list) else [value]
        names: list[str] = []
        for part in parts:
            if not isinstance(part, str):
                raise self._error(where, HOSTS)
            try:
                names += expand_hosts(part)
            except ValueError as error:
                raise self._error(where, f"{HOSTS} ({error})") from None
        if not names:
            raise self._error(where, HOSTS)
        return tuple(names)

    def _make(self, kind: type, table: Table, where: str) -> Any:
        fields = _fields(kind)
        self._known_keys(table, fields, f"{where}.")
        if missing := [
            name for name, field in fields.items() if _is_needed(field) and name not in table
        ]:
            raise self._error(f"{where}.{missing[0]}", "a value; it is missing")
        hints = typing.get_type_hints(kind)
        values = {
            key: self._value(value, hints[key], f"{where}.{key}") for key, value in table.items()
        }
        return self._build(kind, f"{where}: ", **values)

    def _build(self, kind: type, where: str, **values: Any) -> Any:
        try:
            return kind(**values)
        except InvalidCluster as error:
            raise InvalidCluster(f"{self._path}: {where}{error}") from None
        except TypeError:
            raise self._error(
                "nodes and partitions", "at least one [[nodes]] and one [[partitions]]"
            ) from None

    def _value(self, value: object, hint: Any, where: str) -> Any:
        try:
            if (
                where.endswith(".over_time_limit_s")
                and isinstance(value, str)
                and _time_s(value) is None
            ):
                return YEAR_S
            return _convert(value, hint, is_time=where.endswith("_s"))
        except _Wrong as wrong:
            raise self._error(where, str(wrong), value) from None

    def _known_keys(self, table: Table, known: Iterable[str], prefix: str) -> None:
        names = list(known)
        for key in table:
            if key not in names:
                like = difflib.get_close_matches(key, names, 1, cutoff=0.75)
                hint = f"{like[0]}?" if like else ", ".join(names)
                raise self._error(f"{prefix}{key}", f"a key that is known here: {hint}")

    def _error(self, where: str, expected: str, found: object = None) -> InvalidCluster:
        what = "" if found is None else f" is {found!r}"
        return InvalidCluster(f"{self._path}: {where}{what}: give {expected}")


def _fields(kind: type) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(kind)}


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _convert(value: object, hint: Any, is_time: bool) -> object:
    """As the field's type wants it. Times may also be written as in slurm.conf: ``"2-00:00:00"``."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        if is_time and isinstance(value, str):
            return _time_s(value)
        return _convert(
            value, next(kind for kind in typing.get_args(hint) if kind is not type(None)), is_time
        )
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _Wrong("a list of strings")
        return tuple(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _member(value, hint)
    if is_time and isinstance(value, str) and (seconds := _time_s(value)) is not None:
        return seconds
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise _Wrong(NAMES[hint])
    return value


def _time_s(text: str) -> int | None:
    try:
        return parse_time_s(text)
    except ValueError:
        raise _Wrong('seconds, or a time such as "2-00:00:00"') from None


def _member(value: object, kind: type[Enum]) -> Enum:
    try:
        return kind(value)
    except ValueError:
        raise _Wrong(" or ".join(member.value for member in kind)) from None


# ---- writing


def write_toml(cluster: ClusterConfig) -> str:
    """The text of a TOML from which `read_cluster` makes an equal cluster.

    Raises InvalidCluster for node names or accounts that `read_cluster` would refuse.
    """
    check_accounts(cluster.associations)
    tables = [
        _text("[cluster]", _head(cluster)),
        _text("[scheduler]", _values(cluster.params)),
        *(_text("[[nodes]]", table) for table in _node_tables(cluster.nodes)),
    ]
    for name in TABLES:
        if name not in ("nodes", "node_changes"):
            tables += [
                _text(f"[[{name}]]", _with_hosts(_values(part, plain=True)))
                for part in getattr(cluster, name)
            ]
    tables += [_text("[[node_changes]]", table) for table in _change_tables(cluster.node_changes)]
    return "\n".join(tables)


def _head(cluster: ClusterConfig) -> Table:
    return {"name": cluster.name} | (
        {"scheduler_is_assumed": True} if cluster.scheduler_is_assumed else {}
    )


def _node_tables(nodes: tuple[NodeSpec, ...]) -> Iterable[Table]:
    """One for each run of nodes that differ in nothing but their names."""
    for _, group in itertools.groupby(nodes, key=lambda node: dataclasses.replace(node, name="")):
        alike = list(group)
        yield {**_values(alike[0], plain=True), "name": _hosts_text([node.name for node in alike])}


def _change_tables(changes: tuple[NodeChange, ...]) -> Iterable[Table]:
    """One for each run of nodes that change alike at one time."""
    for _, group in itertools.groupby(changes, key=lambda change: (change.time_s, change.action)):
        alike = list(group)
        yield {
            **_values(alike[0], plain=True),
            "node": _hosts_text([change.node for change in alike]),
        }


def _with_hosts(table: Table) -> Table:
    return {key: _hosts_text(value) if key == "nodes" else value for key, value in table.items()}


def _hosts_text(names: Iterable[str]) -> str:
    names = tuple(names)
    text = compress_hosts(names)
    try:
        if expand_hosts(text) == names:
            return text
    except ValueError:
        pass
    raise InvalidCluster(
        f"nodes {', '.join(map(repr, names[:3]))}: brackets, commas and blanks cannot be written"
    )


def _values(part: Any, plain: bool = False) -> Table:
    """Its fields; `plain`: without those that have their default. None has no TOML: it is always
    the default.
    """
    values = {}
    for name, field in _fields(type(part)).items():
        value = getattr(part, name)
        if value is not None and not (plain and value == field.default):
            values[name] = value
    return values


def _text(header: str, values: Mapping[str, Any]) -> str:
    return "\n".join([header, *(f"{key} = {_literal(value)}" for key, value in values.items()), ""])


def _literal(value: object) -> str:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's strings are TOML's, but for DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
