"""`mirage doctor`: what of Mirage will work on this site. Changes nothing."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.markup import escape

from mirage.apps.places import DEFAULT_STORE, journal_from, settled, store_path
from mirage.chain.folder import make_chains_folder
from mirage.chain.sbatch import real_sbatch
from mirage.cli.table import console
from mirage.config import Config
from mirage.config_sources import SITE_FILE, is_there, load, named_file, user_file
from mirage.daemon.restraint import acting_from
from mirage.doctor.finding import EXIT_CODES, Diagnosis, Severity, worst
from mirage.doctor.service import (
    check_acting,
    check_adapter,
    check_drift,
    check_files,
    check_intake,
    check_model,
    check_server,
    check_waits,
)
from mirage.doctor.slurm import check_slurm
from mirage.doctor.survey import Site, survey
from mirage.doctor.trial import check_trial, try_job
from mirage.doctor.users import check_users
from mirage.domain import ActingMode, Settings
from mirage.ports import Cluster
from mirage.user.service_check import agent_folder, default_agent_store
from mirage.user.slurm_access import REST, glance_of, slurm_user, survey_of
from mirage.user.waits_folder import waits_folders

_STYLES = {
    Severity.OK: "green",
    Severity.NOTE: "cyan",
    Severity.WARNING: "yellow",
    Severity.ERROR: "bold red",
}
_VERDICTS = {
    Severity.OK: "All will work.",
    Severity.NOTE: "All will work.",
    Severity.WARNING: "It will work, with the limits above.",
    Severity.ERROR: "It will not work as it is: see the errors.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 all will work, 3 there are warnings, 4 there are errors; 1 and 2 as for"
        " every verb."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML (docs/configuration.md)")
    parser.add_argument(
        "--for",
        dest="role",
        choices=["daemon", "agent"],
        help=(
            "whose needs to judge (default: the daemon's if your rights are enough for it, else the"
            " agent's)"
        ),
    )
    parser.add_argument(
        "--try-job",
        nargs="?",
        const="",
        metavar="OPTIONS",
        help=(
            "also run a short job, with these sbatch options in one word, that checks what a chain"
            " needs of the compute nodes"
        ),
    )
    parser.add_argument("--all", action="store_true", help="show what is well too")
    parser.add_argument("--json", action="store_true", help="output as JSON (docs/cli.md)")


def run(args: argparse.Namespace) -> int:
    config = load(
        named_file(args.config),
        SITE_FILE if named_file(args.config) or is_there(SITE_FILE) else user_file(),
    ).config
    cluster = glance_of(config.cluster, config.cluster.timeout_s)
    site = survey(
        survey_of(config.cluster),
        cluster,
        slurm_user(config.cluster),
        is_root=os.getuid() == 0 and config.cluster.adapter != REST,
        of_daemon=None if args.role is None else args.role == "daemon",
    )
    findings, trial = list(examine(site, config)), []
    if args.try_job is not None:
        trial = _try_job(cluster, shlex.split(args.try_job))
    findings += trial
    severity = worst(findings)
    if args.json:
        print(json.dumps(_as_json(site, findings, severity), indent=2))
        return EXIT_CODES[severity]
    console.print(f"Judged for {_role(site)}, run as {escape(site.user)}\n")
    for finding in sorted(findings, key=lambda finding: -finding.severity):
        if args.all or finding.severity is not Severity.OK or finding in trial:
            _show(finding)
    well = sum(finding.severity is Severity.OK for finding in findings)
    console.print(
        f"{well} checks are well{'' if args.all else ' (--all shows them)'}. {_VERDICTS[severity]}"
    )
    return EXIT_CODES[severity]


def examine(site: Site, config: Config) -> Iterator[Diagnosis]:
    """All checks."""
    default_mode, extra = (
        (ActingMode.OBSERVE, ()) if site.of_daemon else (ActingMode.ENFORCE, (_own_disable_file(),))
    )
    default_store = DEFAULT_STORE if site.of_daemon else default_agent_store()
    config = settled(config, default_store)
    yield from check_slurm(site, config.daemon.poll_s)
    if isinstance(site.settings, Settings):
        yield from check_adapter(config.cluster)
    yield from check_users(site)
    yield from check_acting(site, acting_from(config.acting, default_mode, *extra), config.acting)
    yield from check_intake(config.acting, config.daemon.socket if site.of_daemon else "")
    files = {"audit": journal_from(config, default_store).path}
    if store := store_path(config.daemon.store):
        files["store"] = store
    yield from check_files(files)
    yield from check_server(config.daemon.store)
    yield from check_model(site, config.policy, config.daemon.poll_s)
    yield from check_drift(files["audit"], config.policy)
    yield from check_waits(waits_folders()[site.of_daemon])


def _try_job(cluster: Cluster, options: Sequence[str]) -> list[Diagnosis]:
    folder = make_chains_folder()
    sbatch = real_sbatch(os.environ.get("PATH", os.defpath))
    return list(
        check_trial(
            try_job(cluster, folder, str(Path(sbatch).parent) if sbatch else "", options), folder
        )
    )


def _own_disable_file() -> Path:
    return agent_folder() / "disabled"


def _role(site: Site) -> str:
    return "the site's daemon" if site.of_daemon else "a user's own agent"


def _show(finding: Diagnosis) -> None:
    word = finding.severity.name.lower()
    console.print(
        f"[{_STYLES[finding.severity]}]{word:8}[/]{finding.check}: {escape(finding.what)}"
    )
    for name, text in (("why", finding.why), ("do", finding.do)):
        if text:
            console.print(f"{'':8}{name}: {escape(text)}")


def _as_json(site: Site, findings: list[Diagnosis], severity: Severity) -> dict[str, object]:
    rows = [
        {
            "check": finding.check,
            "severity": finding.severity.name.lower(),
            "what": finding.what,
            "why": finding.why,
            "do": finding.do,
        }
        for finding in findings
    ]
    return {
        "for": "daemon" if site.of_daemon else "agent",
        "user": site.user,
        "severity": severity.name.lower(),
        "findings": rows,
    }
