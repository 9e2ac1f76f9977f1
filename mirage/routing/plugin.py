"""The plugin's place in a site's `job_submit.lua`: put in, looked at, taken out. What the site
wrote stays as it was.

slurmctld reads the script again, at the next submission, when its modification time has *grown*
(22.05, `slurm_lua_loadscript`), and never looks at files that it includes. So each change here
moves that time forward.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from mirage.errors import InputError, MirageError
from slurm_sim.files import read_bytes, replacing

LUA_FILES = ("mirage_tables.lua", "mirage_decide.lua", "mirage_places.lua", "mirage_routing.lua")
BEGIN = (
    "-- >>> mirage routing: `mirage plugin install` wrote this, `mirage plugin remove` takes it"
    " out >>>"
)
END = "-- <<< mirage routing <<<"
_SKELETON = """\
function slurm_job_submit(job_desc, part_list, submit_uid)
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
"""
_BLOCK = """\
{begin}
do
    local good, mirage = pcall(dofile, {script})
    if good then
        slurm_job_submit = mirage.wrap(slurm_job_submit, {{ {options} }})
    else
        slurm.log_error("mirage: no routing: %s", tostring(mirage))
    end
end
{end}
"""


@dataclass(frozen=True)
class PluginOptions:
    """What the site decides.

    ``marker``: a partition whose jobs are routed too. ``named``: the paper's agents
    choose the server of jobs that name a partition. ``counters``: a file for Prometheus.
    """

    run: Path = Path("/run/mirage")
    marker: str = ""
    named: bool = False
    counters: str = ""


def install(script: Path, options: PluginOptions) -> list[Path]:
    """Copies the Lua files beside ``script`` and puts the block into it; both again after an
    upgrade.

    Returns what was written. Raises InputError where the script's end is not understood,
    MirageError if something can't be written.
    """
    text = _without_block(_read(script)) if script.exists() else _SKELETON
    changed = _with_block(script, text, _block(script.parent, options))
    lua = resources.files("mirage.routing").joinpath("lua")
    for name in LUA_FILES:
        _write(script.parent / name, lua.joinpath(name).read_text(encoding="utf-8"))
    _write(script, changed)
    return [script, *(script.parent / name for name in LUA_FILES)]


def remove(script: Path) -> bool:
    """Takes the block and the Lua files out; False: there was none. The script stays: slurmctld
    needs one.
    """
    text = _read(script)
    if BEGIN not in text:
        return False
    _write(script, _without_block(text))
    for name in LUA_FILES:
        (script.parent / name).unlink(missing_ok=True)
    return True


def is_installed(script: Path) -> bool:
    return script.exists() and BEGIN in _read(script)


def outdated(script: Path) -> list[str]:
    """The Lua files that are missing or not of this version."""
    lua = resources.files("mirage.routing").joinpath("lua")
    wanted = {name: lua.joinpath(name).read_text(encoding="utf-8") for name in LUA_FILES}
    return [
        name
        for name, text in wanted.items()
        if not (script.parent / name).exists() or _read(script.parent / name) != text
    ]


def _block(lib: Path, options: PluginOptions) -> str:
    fields = {"lib": _quoted(str(lib)), "run": _quoted(str(options.run))}
    if options.marker:
        fields["marker"] = _quoted(options.marker)
    if options.named:
        fields["named"] = "true"
    if options.counters:
        fields["counters"] = _quoted(options.counters)
    written = ", ".join(f"{name} = {value}" for name, value in fields.items())
    return _BLOCK.format(
        begin=BEGIN, end=END, script=_quoted(str(lib / "mirage_routing.lua")), options=written
    )


def _quoted(text: str) -> str:
    if not text.isprintable() or '"' in text or "\\" in text:
        raise InputError(
            f"{text!r}: give a path or name without quotes, backslashes and control characters."
        )
    return f'"{text}"'


def _with_block(script: Path, text: str, block: str) -> str:
    """After all of the site's functions: at the end, or before a last `return`, behind which Lua
    allows nothing.
    """
    lines = text.splitlines(keepends=True)
    code = [
        number
        for number, line in enumerate(lines)
        if line.strip() and not line.lstrip().startswith("--")
    ]
    returns = [number for number in code if re.match(r"return\b", lines[number])]
    if returns and returns[-1] != code[-1]:
        raise InputError(
            f"{script}:{returns[-1] + 1}: a `return` outside of a function that is not the last"
            f" line; put this before it by hand:\n{block}"
        )
    if returns:
        return "".join([*lines[: returns[-1]], block, *lines[returns[-1] :]])
    return text + ("" if text.endswith("\n") or not text else "\n") + block


def _without_block(text: str) -> str:
    return re.sub(rf"{re.escape(BEGIN)}\n.*?{re.escape(END)}\n", "", text, flags=re.DOTALL)


def _read(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8", errors="surrogateescape")
    except OSError as error:
        raise InputError(
            f"{path}: can't be read ({error.strerror}); give the site's job_submit.lua."
        ) from error


def _write(path: Path, text: str) -> None:
    """In one step, with the old one's rights, and a later modification time than it had."""
    try:
        before = path.stat() if path.exists() else None
        mode = before.st_mode & 0o7777 if before else 0o644
        with replacing(path, mode) as fresh:
            fresh.write_bytes(text.encode("utf-8", errors="surrogateescape"))
            if before:
                os.chown(fresh, before.st_uid, before.st_gid)
                later = max(int(before.st_mtime) + 1, int(fresh.stat().st_mtime))
                os.utime(fresh, (later, later))
    except OSError as error:
        raise MirageError(f"{path}: can't be written ({error.strerror}).") from error
