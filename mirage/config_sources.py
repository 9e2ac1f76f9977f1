"""Where the configuration comes from: files, then the environment, then the command line; the last
one wins.

Files: `mirage.toml` and, in the folder `conf.d` beside it, `*.toml` in the order of their names.
Environment: a key in capitals behind `MIRAGE`, its parts joined by two underscores:
`MIRAGE__DAEMON__POLL_S=300`.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from mirage.config import Config, DaemonConfig, Tree, check_tree, made_of, read_tree
from mirage.errors import InputError
from slurm_sim.files import read_text
from slurm_sim.formats import parse_toml

PREFIX = "MIRAGE__"
SITE_FILE = Path("/etc/mirage/mirage.toml")
BY_ITSELF = "worked out, since nothing is said"
"""The origin of a default that depends on something else."""
Key = tuple[str, ...]


@dataclass(frozen=True)
class LoadedConfig:
    """The configuration, and where what is not a default was said."""

    config: Config
    origins: Mapping[Key, str]


def user_file(environ: Mapping[str, str] = os.environ) -> Path:
    """An agent's configuration, after the XDG base directory specification."""
    return (
        Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "mirage" / "mirage.toml"
    )


def named_file(given: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The configuration that the command line (``given``) or the environment names."""
    return given or (Path(name) if (name := environ.get("MIRAGE_CONFIG")) else None)


def is_there(path: Path) -> bool:
    """Raises InputError where this user may not look: a configuration that is left out unseen is
    worse than none.
    """
    try:
        return path.exists()
    except PermissionError as error:
        raise InputError(
            f"{path}: can't be read: permission denied; name another one with --config"
        ) from error


def load(
    file: Path | None,
    usual: Path,
    environ: Mapping[str, str] = os.environ,
    given: Mapping[Key, Any] | None = None,
) -> LoadedConfig:
    """``file``: must be there; None: ``usual``, if it is. ``given``: on the command line; None says
    nothing.

    Raises InputError with file and line, or the variable's name.
    """
    flags = [
        (key, value, "the command line")
        for key, value in (given or {}).items()
        if value is not None
    ]
    layers = [*_of_files(file, usual), *_of_environment(environ), *flags]
    tree: Tree = {}
    for key, value, _origin in layers:
        _put(tree, key, value)
    return LoadedConfig(made_of(tree), {key: origin for key, _value, origin in layers})


def store_url(daemon: DaemonConfig, default: str) -> str:
    """The store's URL: `store`, the first line of `store_file`, or ``default``. Raises InputError."""
    if not daemon.store_file:
        return daemon.store or default
    if daemon.store:
        raise InputError(
            "daemon.store and daemon.store_file: give one of them (`--print-config` shows who says"
            " which)"
        )
    try:
        lines = read_text(Path(daemon.store_file)).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"daemon.store_file: {daemon.store_file} can't be read: {error}"
        ) from error
    if not lines or not lines[0].strip():
        raise InputError(
            f"daemon.store_file: {daemon.store_file}: expected the store's URL in the first line"
        )
    url = lines[0].strip()
    if "@" in url and Path(daemon.store_file).stat().st_mode & 0o007:
        raise InputError(
            f"daemon.store_file: {daemon.store_file}: others can read the password: chmod o= it, and"
            " change the password."
        )
    return url


def show(loaded: LoadedConfig) -> str:
    """The whole configuration as TOML, with who said what. Passwords are not in it."""
    return "\n".join(_lines(loaded.config, (), loaded.origins)).strip() + "\n"


def with_store(loaded: LoadedConfig, url: str) -> LoadedConfig:
    """The same with the store's URL settled."""
    daemon = loaded.config.daemon
    if daemon.store_file:
        origin = f"first line of {daemon.store_file} ({loaded.origins['daemon', 'store_file']})"
    else:
        origin = loaded.origins.get(("daemon", "store"), BY_ITSELF)
    return with_values(loaded, {("daemon", "store"): (url, origin)})


def with_values(loaded: LoadedConfig, values: Mapping[Key, tuple[Any, str]]) -> LoadedConfig:
    """The same with these values of tables' keys, and who says so."""
    config = loaded.config
    for (table, key), (value, _origin) in values.items():
        config = replace(config, **{table: replace(getattr(config, table), **{key: value})})
    return LoadedConfig(
        config, {**loaded.origins, **{path: origin for path, (_value, origin) in values.items()}}
    )


def hidden(url: str) -> str:
    """A URL without password and options."""
    return re.sub(r"\?.*", "?...", re.sub(r"(://[^:/]*):.*@", r"\1:***@", url))


def _of_files(file: Path | None, usual: Path) -> Iterator[tuple[Key, Any, str]]:
    main = file or usual
    parts = sorted((main.parent / "conf.d").glob("*.toml"))
    for path in [*([main] if file or is_there(main) else []), *parts]:
        for key, value in _leaves(read_tree(path)):
            yield key, value, str(path)


def _of_environment(environ: Mapping[str, str]) -> Iterator[tuple[Key, Any, str]]:
    for name in sorted(environ):
        if name.startswith(PREFIX):
            yield from (
                (key, value, name) for key, value in _leaves(_variable(name, environ[name]))
            )


def _variable(name: str, text: str) -> Tree:
    """A variable as a checked tree of one value. Text is text; else it is read as TOML reads it."""
    key = tuple(name.removeprefix(PREFIX).lower().split("__"))

    def fail(path: Key, problem: str) -> InputError:
        return InputError(f"environment variable {name}: {'.'.join(path)}: {problem}")

    try:
        return check_tree(_tree(key, text), fail)
    except InputError:
        if (value := _toml_value(text)) is None:
            raise
        return check_tree(_tree(key, value), fail)


def _toml_value(text: str) -> Any:
    try:
        document = parse_toml(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return None
    return document["value"] if len(document) == 1 else None


def _tree(key: Key, value: Any) -> Tree:
    tree: Tree = {}
    _put(tree, key, value)
    return tree


def _put(tree: Tree, key: Key, value: Any) -> None:
    for part in key[:-1]:
        tree = tree.setdefault(part, {})
    tree[key[-1]] = value


def _leaves(tree: Tree, path: Key = ()) -> Iterator[tuple[Key, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _lines(part: Any, path: Key, origins: Mapping[Key, str]) -> Iterator[str]:
    plain: Sequence[Any] = [f for f in fields(part) if not is_dataclass(getattr(part, f.name))]
    if plain:
        yield f"\n[{'.'.join(path)}]"
    for field in plain:
        value = getattr(part, field.name)
        text = json.dumps(
            hidden(value) if "secret" in field.metadata else value, ensure_ascii=False
        )
        origin = origins.get((*path, field.name))
        yield f"{field.name} = {text}" + (f"    # {origin}" if origin else "")
    for field in fields(part):
        if is_dataclass(getattr(part, field.name)):
            yield from _lines(getattr(part, field.name), (*path, field.name), origins)
