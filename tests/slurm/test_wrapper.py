"""mirage-sbatch in front of the real sbatch."""

from __future__ import annotations

import subprocess

import pytest

from tests.slurm.site import ALICE, BUSY, ROOT, Site, until

pytestmark = pytest.mark.slurm

CHAIN = "#!/bin/sh\n#SBATCH -N1 -t5 -o /dev/null\n#MIRAGE --segments=2\nexec sleep 300\n"


@pytest.fixture
def wrapped(site: Site) -> str:
    """A folder with the wrapper as `sbatch`, before Slurm's on PATH."""
    folder = site.folder / "wrap"
    folder.mkdir(exist_ok=True)
    link = folder / "sbatch"
    link.unlink(missing_ok=True)
    link.symlink_to(site.bin / "mirage-sbatch")
    return str(folder)


def sbatch(
    site: Site, wrapped: str, *words: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    env = site.environment(ALICE)
    return subprocess.run(
        site.argv(ALICE, ["sbatch", *words]),
        env=env | {"PATH": f"{wrapped}:{env['PATH']}"},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60 * BUSY,
    )


def test_what_has_no_mirage_lines_goes_through(site: Site, wrapped: str) -> None:
    out = site.home(ALICE) / "wrapped.out"
    done = sbatch(site, wrapped, "-W", "-o", str(out), "--wrap", "echo 'a  b'; exit 3")
    assert done.stdout.startswith("Submitted batch job ")
    assert done.returncode == 3, "the job's own, by --wait"
    assert out.read_text() == "a  b\n"
    done = sbatch(
        site,
        wrapped,
        "-W",
        "-o",
        str(out),
        stdin="#!/bin/sh\n#MIRAGE --segments=2\necho from stdin\n",
    )
    assert (done.returncode, out.read_text()) == (0, "from stdin\n")
    array = sbatch(
        site, wrapped, "--parsable", "--array=1-2", "-o/dev/null", "--wrap", "true"
    ).stdout.strip()
    assert site.job(int(array)).get("ArrayJobId") == array
    plain = site.run(ALICE, "sbatch", "--no-such", check=False)
    wrong = sbatch(site, wrapped, "--no-such")
    assert (wrong.returncode, wrong.stderr) == (plain.returncode, plain.stderr)


def test_a_script_with_mirage_lines_is_a_chain_whose_links_queue_the_next(
    site: Site, wrapped: str
) -> None:
    script = site.script(ALICE, "wrapped.sh", CHAIN)
    done = sbatch(site, wrapped, script)
    assert done.returncode == 0, done.stderr
    first = int(done.stdout.removeprefix("Submitted batch job "))
    chain = done.stderr.split()[2].rstrip(":")
    until(lambda: site.state(first) == "RUNNING", 30, "the first link")
    assert site.chain_jobs(ALICE, chain) == {1: [first], 2: [first + 1]}


def test_the_cli_filter_refuses_who_forgot_mirage_submit_and_nobody_else(site: Site) -> None:
    """The clients' configuration alone: slurmctld need not know of the filter."""
    folder = site.folder / "cli_filter"
    folder.mkdir(mode=0o755, exist_ok=True)
    conf = folder / "slurm.conf"
    conf.write_text((site.folder / "etc" / "slurm.conf").read_text() + "CliFilterPlugins=lua\n")
    (folder / "cli_filter.lua").write_text((ROOT / "packaging" / "cli_filter.lua").read_text())

    def submitted(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        env = site.environment(ALICE) | {"SLURM_CONF": str(conf)}
        argv = site.argv(ALICE, words)
        return subprocess.run(
            argv, env=env, input=stdin, capture_output=True, text=True, timeout=60 * BUSY
        )

    script = site.script(ALICE, "wrapped.sh", CHAIN)
    refused = submitted("sbatch", script)
    assert refused.returncode != 0
    assert "this script has #MIRAGE lines: start it as a chain" in refused.stderr
    plain = site.script(
        ALICE, "plain.sh", "#!/bin/sh\n#SBATCH -N1 -t5 -o /dev/null\ntrue\n#MIRAGE --segments=2\n"
    )
    for words in (
        ["sbatch", plain],
        ["sbatch", "-o/dev/null", "--wrap", "true"],
        ["mirage-submit", script],
    ):
        done = submitted(*words)
        assert done.returncode == 0, done.stderr
        assert "lua" not in done.stderr


SELF_SUBMITTING = """\
#!/bin/bash
#SBATCH --time=2 -o self-%j.log
#MIRAGE --segments=2 --min-runtime=0 --max-short=0
sbatch "$0"
sbatch "$MIRAGE_SCRIPT"
cp "$0" copy-$SLURM_JOB_ID.sh; sbatch copy-$SLURM_JOB_ID.sh
sbatch -o /dev/null -J evaluation --wrap true
source "$(dirname "$MIRAGE_SCRIPT")/helper.sh"
"""


def test_a_script_that_still_resubmits_itself_is_one_chain(site: Site, wrapped: str) -> None:
    """Its other jobs go through, and it finds its own folder."""
    script = site.script(ALICE, "self.sh", SELF_SUBMITTING)
    site.script(ALICE, "helper.sh", "echo helper of link $MIRAGE_SEGMENT\n")
    before = set(site.home(ALICE).glob("self-*.log"))
    done = sbatch(site, wrapped, script)
    assert done.returncode == 0, done.stderr
    until(
        lambda: not site.run("root", "squeue", "-h", "-u", ALICE).stdout.strip(),
        60,
        "the chain's end",
    )
    rows = site.run("root", "squeue", "-h", "-t", "all", "-u", ALICE, "-o", "%A|%j").stdout
    first = int(done.stdout.removeprefix("Submitted batch job "))
    parts = [row.partition("|") for row in rows.splitlines()]
    # An earlier job's name may have several lines.
    names = [name for job, _, name in parts if job.isdigit() and int(job) >= first]
    assert sorted(names) == ["evaluation", "evaluation", "self.sh", "self.sh"]
    written = set(site.home(ALICE).glob("self-*.log")) - before
    logs = [
        path.read_text()
        for path in sorted(written, key=lambda path: int(path.stem.removeprefix("self-")))
    ]
    assert len(logs) == 2
    for segment, log in enumerate(logs, start=1):
        assert log.count("remove this submission from the script") == 3
        assert f"helper of link {segment}" in log
