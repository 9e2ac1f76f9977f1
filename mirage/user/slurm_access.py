"""How a user's verb reaches Slurm: as one's own configuration says, or the site's."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.config import AdapterConfig
from mirage.slurm.commands import GLANCE_S, CommandCluster
from mirage.slurm.runner import Runner

if TYPE_CHECKING:
    from mirage.ports import Cluster
    from mirage.slurm.survey import SiteSurvey

REST = "rest"


def adapter_config(environ: Mapping[str, str] = os.environ) -> AdapterConfig:
    """The table `cluster` of one's own configuration; where there is none, of the site's.

    The site's token is the daemon's: where one may not read it, $SLURM_JWT has one's own, and
    without either the commands are used. Raises InputError.
    """
    from mirage.config_sources import SITE_FILE, load, named_file, user_file

    named, own = named_file(None, environ), user_file(environ)
    if named or own.exists() or not os.access(SITE_FILE, os.R_OK):
        return load(named, own, environ).config.cluster
    config = load(None, SITE_FILE, environ).config.cluster
    if config.adapter != REST or _may_read(config.rest_token_file):
        return config
    if environ.get("SLURM_JWT"):
        return replace(config, rest_token_file="")
    return replace(config, adapter="commands")


def slurm_of(config: AdapterConfig) -> Cluster:
    """Slurm as the user who runs this. PySlurm's import takes longer than the commands do, so it is
    the services' alone. Raises InputError.
    """
    if config.adapter != REST:
        return CommandCluster.from_config(config)
    from mirage.slurm.rest_cluster import RestCluster

    return RestCluster.from_config(config)


def glance_of(config: AdapterConfig, at_most_s: float = GLANCE_S) -> Cluster:
    """For reads that somebody waits for and can do without: one try. ``at_most_s``: of a command; an
    answer of the REST API is larger, and has the configured time. Raises InputError.
    """
    if config.adapter != REST:
        timeout_s = min(config.timeout_s, at_most_s)
        return CommandCluster(Runner(bin_dir=config.bin_dir, timeout_s=timeout_s, retries=0))
    from mirage.slurm.rest_cluster import RestCluster

    return RestCluster.from_config(config, retries=0)


def survey_of(config: AdapterConfig) -> SiteSurvey:
    """One try. Raises InputError."""
    if config.adapter != REST:
        from mirage.slurm.survey import Survey

        return Survey(Runner(bin_dir=config.bin_dir, timeout_s=config.timeout_s, retries=0))
    from mirage.slurm.rest_survey import RestSurvey

    return RestSurvey.from_config(config)


def slurm_user(config: AdapterConfig) -> str:
    """Whose name Slurm sees: the token's, or one's own."""
    if config.adapter == REST:
        from mirage.slurm.rest_client import token_claims, token_source

        return str(token_claims(token_source(config.rest_token_file)()).get("sun") or _me())
    return _me()


def _me() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _may_read(file: str) -> bool:
    return bool(file) and os.access(Path(file).expanduser(), os.R_OK)
