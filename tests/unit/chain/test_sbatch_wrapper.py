"""mirage-sbatch as a drop-in: nobody who does not use Mirage can tell it from sbatch."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirage.chain.directives import directives
from mirage.chain.sbatch import real_sbatch

ROOT = Path(__file__).parents[3]
# Shows everything that a process is given: words, environment, standard input, folder, umask,
# ignored signals, files.
SBATCH = r"""#!/bin/sh
{
    for word; do printf '%s\0' "$word"; done; printf '\0'
    cat /proc/self/environ; printf '\0'
    pwd; umask
    grep -E '^(SigIgn|SigBlk)' /proc/self/status
    cat
} >"$0.seen"
[ ! -e "$0.id" ] || echo "out"
echo "err" >&2
exit 7
"""
CHAIN = (
    "#!/bin/sh\n#SBATCH --time=60\n\n# a comment\n#MIRAGE --segments=3  # three\n#MIRAGE --mode"
    " service\ndate\n"
)
PLAIN = "#!/bin/sh\n#SBATCH --time=60\ndate\n#MIRAGE --segments=3\n"


class Site:
    """A folder with the wrapper as `sbatch`, one with a fake sbatch, and scripts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.real = root / "real" / "sbatch"
        self.wrapper = root / "wrap" / "sbatch"
        self.more: dict[bytes, bytes] = {}
        """More of the environment."""
        for file in (self.real, self.wrapper):
            file.parent.mkdir()
        self.real.write_text(SBATCH)
        self.wrapper.write_text(
            f"#!{sys.executable}\nimport sys\nfrom mirage.cli.sbatch import"
            " main\nsys.exit(main())\n"
        )
        for file in (self.real, self.wrapper):
            file.chmod(0o755)
        for name, text in (("plain.sh", PLAIN), ("chain.sh", CHAIN)):
            (root / name).write_text(text)

    @property
    def environ(self) -> dict[bytes, bytes]:
        path = f"{self.wrapper.parent}:{self.real.parent}:/usr/bin:/bin"
        return {
            b"PATH": path.encode(),
            b"HOME": str(self.root).encode(),
            b"PYTHONPATH": str(ROOT).encode(),
            b"LANG": b"C",
            b"ODD\xff": b"\xfe value\n= x",
            b"EMPTY": b"",
            **self.more,
        }

    def seen(
        self, program: Path, words: list[bytes], stdin: bytes = b""
    ) -> tuple[int, bytes, bytes, bytes]:
        """Exit code, both outputs, and what the fake sbatch was given."""
        seen = Path(f"{self.real}.seen")
        seen.unlink(missing_ok=True)
        done = subprocess.run(
            [b"sbatch", *words],
            executable=program,
            env=self.environ,
            cwd=self.root,
            input=stdin,
            capture_output=True,
            restore_signals=True,
            timeout=240,
        )
        return (
            done.returncode,
            done.stdout,
            done.stderr,
            seen.read_bytes() if seen.exists() else b"",
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def assert_invisible(site: Site, words: list[bytes], stdin: bytes = b"") -> None:
    direct = site.seen(site.real, words, stdin)
    assert direct[3].endswith(stdin)
    assert site.seen(site.wrapper, words, stdin) == direct


@pytest.mark.parametrize(
    "words",
    [
        [b"plain.sh"],
        [b"./plain.sh", b"a b", b"", b"c\nd", b"--segments=3", b"$HOME", b"`id`", b"\xff\xfe"],
        [b"--wrap", b"echo 'a  b' | sed \"s/a/b/\"; #MIRAGE --segments=3"],
        [b"--wrap=hostname", b"chain.sh"],
        [b"--array=0-3%2", b"-o", b"%A_%a.out", b"plain.sh", b"x"],
        [b"--help"],
        [b"--version", b"chain.sh"],
        [b"-V"],
        [],
        [b"--"],
        [b"-"],
        [b"--time"],
        [b"--no-such-option", b"plain.sh"],
        [b"--site-plugin", b"value", b"plain.sh"],
        [b"missing.sh"],
        [b"."],
        [b"-N1", b":", b"-N2", b"plain.sh"],
    ],
    ids=lambda words: b" ".join(words).decode("ascii", "replace"),
)
def test_without_mirage_lines_sbatch_gets_what_was_given(site: Site, words: list[bytes]) -> None:
    assert_invisible(site, words, stdin=b"")


def test_a_script_on_standard_input_is_not_touched(site: Site) -> None:
    assert_invisible(site, [b"-N1"], stdin=b"#!/bin/sh\n#SBATCH -N1\n\0\xff\n" * 20_000)


@given(st.lists(st.binary(max_size=12).map(lambda word: word.replace(b"\0", b"")), max_size=6))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_words_at_all_are_changed(site: Site, words: list[bytes]) -> None:
    assert_invisible(site, words)


def test_it_takes_the_place_of_its_own_process_so_signals_reach_sbatch(site: Site) -> None:
    site.real.write_text("#!/bin/sh\necho $$\nexec sleep 60\n")
    with subprocess.Popen(
        [site.wrapper, "plain.sh"], env=site.environ, cwd=site.root, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(
            signal.SIGTERM
        )  # SIGINT is ignored by what a shell started in the background
        assert process.wait(240) == -signal.SIGTERM


def test_without_slurm_it_says_so(site: Site) -> None:
    site.real.unlink()
    code, out, err, _seen = site.seen(site.wrapper, [b"plain.sh"])
    if any(Path(folder, "sbatch").exists() for folder in ("/usr/bin", "/bin")):
        assert code != 127  # this machine has one
    else:
        assert (code, out) == (127, b"")
        assert b"Slurm's own sbatch is not on PATH" in err


def test_the_wrapper_is_not_taken_for_sbatch_by_any_name(tmp_path: Path) -> None:
    heads = {
        "link": None,
        "shell": '#!/bin/sh\nexec mirage-sbatch "$@"\n',
        "folder": None,
        "real": "\x7fELF mirage-sbatch",
    }
    (tmp_path / "mirage-sbatch").write_text(
        "#!/usr/bin/python3\nfrom mirage.cli.sbatch import main\n"
    )
    (tmp_path / "mirage-sbatch").chmod(0o755)
    for name, head in heads.items():
        (tmp_path / name).mkdir()
        program = tmp_path / name / "sbatch"
        if name == "link":
            program.symlink_to(tmp_path / "mirage-sbatch")
        elif head is None:
            program.mkdir()
        else:
            program.write_text(head)
            program.chmod(0o755)
    path = ":".join(["", "/nowhere", *(str(tmp_path / name) for name in heads)])
    assert real_sbatch(path) == str(tmp_path / "real" / "sbatch")
    assert real_sbatch(path.rpartition(":")[0]) == ""


# --- Scripts with #MIRAGE lines


def test_a_service_of_several_replicas_is_not_started_as_one_job(site: Site) -> None:
    (site.root / "many.sh").write_text(CHAIN.replace("--segments=3", "--replicas=3"))
    code, out, err, seen = site.seen(site.wrapper, [b"many.sh"])
    assert (code, out, seen) == (2, b"", b"")
    assert b"--replicas in a #MIRAGE line: sbatch starts one chain" in err


SUBMITTING = r"""#!/bin/sh
for word; do printf '[%s]' "$word" >>"$0.calls"; done; echo >>"$0.calls"
calls=$(wc -l <"$0.calls" | tr -d ' ')
echo "$((100 + calls))"
"""


def test_a_script_with_mirage_lines_starts_a_chain_and_answers_as_sbatch_does(site: Site) -> None:
    site.real.write_text(SUBMITTING)
    code, out, err, _seen = site.seen(site.wrapper, [b"-N2", b"chain.sh", b"arg"])
    assert (code, out) == (0, b"Submitted batch job 101\n"), err
    no_check, told, nobody_watches = err.splitlines()
    assert b"no health check is given" in no_check
    assert told.startswith(b"mirage: chain ")
    assert told.endswith(
        b"3 time limits (at most 12 links); jobs 101 102, then each link queues the next"
    )
    assert nobody_watches.startswith(b"mirage: note: no Mirage daemon answers on this machine")
    first, second = Path(f"{site.real}.calls").read_text().splitlines()
    assert first.startswith("[-N2][--job-name=chain.sh]")
    assert "seg=1/12 of=3 mode=service" in first
    assert "[--dependency=afterany:101]" in second


def test_parsable_prints_the_id_alone(site: Site) -> None:
    site.real.write_text(SUBMITTING)
    code, out, err = site.seen(site.wrapper, [b"--parsable", b"chain.sh"])[:3]
    assert (code, out) == (0, b"101\n")
    assert b"a job that depends on 101 starts after link 1, not after the chain" in err
    assert b"#MIRAGE --then=SCRIPT" in err


@pytest.mark.parametrize(
    ("words", "line", "said"),
    [
        ([b"--array=1-3", b"bad.sh"], "--segments=3", b"a job array can't be chained"),
        ([b"-N1", b":", b"-N2", b"bad.sh"], "--segments=3", b"heterogeneous jobs can't be chained"),
        (
            [b"bad.sh"],
            "--segmets=3",
            b"bad.sh:3: #MIRAGE: --segmets=3 has no meaning here; did you mean --segments?",
        ),
        ([b"bad.sh"], "--segments=x", b"--segments: 'x' is not a whole number"),
        ([b"bad.sh"], "--segments", b"bad.sh:3: #MIRAGE: --segments needs a value"),
        ([b"bad.sh"], "-N5", b"bad.sh:3: #MIRAGE: -N5 has no meaning here"),
        ([b"bad.sh"], "--dry-run --segments=3", b"--dry-run has no meaning here"),
        ([b"bad.sh"], "--segments=3 train", b"'train' is no option"),
        ([b"bad.sh"], "--done-file='x", b"bad.sh:3: #MIRAGE: No closing quotation"),
    ],
)
def test_a_wrong_line_is_one_clear_error_and_nothing_is_submitted(
    site: Site, words: list[bytes], line: str, said: bytes
) -> None:
    (site.root / "bad.sh").write_text(f"#!/bin/sh\n#SBATCH -t60\n#MIRAGE {line}\ndate\n")
    code, out, err, seen = site.seen(site.wrapper, words)
    assert (code, out, seen) == (2, b"", b"")
    assert said in err
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"#!/bin/sh\n#MIRAGE --a\n", [(2, b"--a")]),
        (b"#!/bin/sh\n\n  # x\n#MIRAGE\t--a  \r\n#MIRAGE\n", [(4, b"--a"), (5, b"")]),
        (b"#!/bin/sh\necho\n#MIRAGE --a\n", []),
        (b"#!/bin/sh\n #MIRAGE --a\n#MIRAGES --a\n##MIRAGE --a\n#mirage --a\n", []),
        (b"", []),
        (b"\0" * 100, []),
    ],
)
def test_where_mirage_lines_stand(
    tmp_path: Path, head: bytes, expected: list[tuple[int, bytes]]
) -> None:
    (tmp_path / "script").write_bytes(head)
    with (tmp_path / "script").open("rb") as file:
        assert list(directives(file)) == expected


# --- Nothing is one plain job without a word


@pytest.mark.parametrize(
    "stdin", [b"#!/bin/sh\n#MIRAGE --segments=3\ntrue\n", b"#!/bin/sh\n#MIRAGE x\n" * 20_000]
)
@pytest.mark.parametrize("words", [[b"-N1"], [b"-N1", b"/dev/stdin"], [b"/dev/fd/0"]], ids=str)
def test_mirage_lines_on_standard_input_are_not_followed_and_that_is_said(
    site: Site, words: list[bytes], stdin: bytes
) -> None:
    direct = site.seen(site.real, words, stdin)
    code, out, err, seen = site.seen(site.wrapper, words, stdin)
    assert (code, out, seen) == (direct[0], direct[1], direct[3])
    assert seen.endswith(stdin)
    assert b"#MIRAGE lines of a script on standard input or in a pipe are not followed" in err


def test_a_script_in_a_file_on_standard_input_is_left_unread(site: Site) -> None:
    (site.root / "in").write_text(PLAIN)
    done = []
    for program in (site.real, site.wrapper):
        with (site.root / "in").open() as file:
            subprocess.run(
                [program], env=site.environ, cwd=site.root, stdin=file, check=False, timeout=240
            )
        done.append(Path(f"{site.real}.seen").read_bytes())
    assert done[0] == done[1]
    assert done[0].endswith(PLAIN.encode())


WITH_PLUGIN = r"""#!/bin/sh
case $1 in --help) printf '      --container-image=IMAGE  [pyxis]\n      --container-remap  [pyxis]\n'; exit ;; esac
"""


def test_an_option_of_a_plugin_with_a_separate_value_hides_no_chain(site: Site) -> None:
    site.real.write_text(WITH_PLUGIN + SUBMITTING.removeprefix("#!/bin/sh\n"))
    words = [b"--container-remap", b"--container-im", b"docker://ubuntu:24.04", b"chain.sh"]
    assert site.seen(site.wrapper, words)[:2] == (0, b"Submitted batch job 101\n")
    first = Path(f"{site.real}.calls").read_text().splitlines()[0]
    assert first.startswith(
        "[--container-remap][--container-im][docker://ubuntu:24.04][--job-name=chain.sh]"
    )


@pytest.mark.parametrize("plain", [False, True])
def test_where_nobody_knows_an_option_it_is_said_that_lines_are_not_followed(
    site: Site, plain: bool
) -> None:
    site.real.write_text(SUBMITTING)
    script = b"plain.sh" if plain else b"chain.sh"
    _code, _out, err, _seen = site.seen(
        site.wrapper, [b"--unheard-of", b"docker://ubuntu:24.04", script]
    )
    said = (
        b"the #MIRAGE lines of chain.sh are not followed, because --unheard-of is not known here"
        in err
    )
    assert said is not plain
    assert (
        Path(f"{site.real}.calls")
        .read_text()
        .endswith(f"[docker://ubuntu:24.04][{script.decode()}]\n")
    )


# --- Dry runs


@pytest.mark.parametrize("option", [b"--segments=5", b"--then=x.sh", b"--json"])
def test_a_dry_run_of_a_plain_job_drops_no_option(site: Site, option: bytes) -> None:
    code, out, err, _seen = site.seen(site.wrapper, [b"--dry-run", option, b"plain.sh"])
    assert (code, out) == (2, b"")
    assert option.partition(b"=")[0] + b": only a script with #MIRAGE lines is a chain here" in err


def test_a_dry_run_says_too_which_lines_are_not_followed(site: Site) -> None:
    words = [b"--dry-run", b"--unheard-of", b"docker://ubuntu:24.04", b"chain.sh"]
    _code, out, err, _seen = site.seen(site.wrapper, words)
    assert (
        b"#MIRAGE lines of chain.sh are not followed, because --unheard-of is not known here" in err
    )
    assert out.startswith(b"sbatch --unheard-of docker://ubuntu:24.04 chain.sh\n")


@pytest.mark.parametrize(
    "words",
    [
        [b"--dry-run", b"chain.sh"],
        [b"--dry", b"chain.sh"],
        [b"--dry-run", b"plain.sh", b"a b"],
        [b"--dry-r", b"-N2", b"plain.sh"],
        [b"--dry-run", b"--wrap=hostname"],
        [b"--dry-run"],
        [b"--dry-run", b"--parsable", b"chain.sh"],
    ],
    ids=str,
)
def test_a_dry_run_never_submits(site: Site, words: list[bytes]) -> None:
    site.real.write_text(SUBMITTING)
    code, out, _err, _seen = site.seen(site.wrapper, words, b"#!/bin/sh\n")
    assert code == 0
    assert b"submitted or written" in out
    assert out.startswith(b"sbatch")
    assert not Path(f"{site.real}.calls").exists()
    assert not (site.root / ".mirage").exists()


@pytest.mark.parametrize(
    "words", [[b"--test-only", b"chain.sh"], [b"--test", b"chain.sh"], [b"test.sh"]], ids=str
)
def test_test_only_is_sbatchs_own_for_the_first_link(site: Site, words: list[bytes]) -> None:
    site.real.write_text(SUBMITTING)
    (site.root / "test.sh").write_text(CHAIN.replace("--time=60", "--time=60 --test-only"))
    code, _out, err, _seen = site.seen(site.wrapper, words)
    (call,) = Path(f"{site.real}.calls").read_text().splitlines()
    assert call.endswith("[--test-only]")
    assert code == 0
    assert b"nothing was submitted" in err
    assert not (site.root / ".mirage").exists()


def test_parsable_in_the_script_prints_the_id_alone(site: Site) -> None:
    site.real.write_text(SUBMITTING)
    (site.root / "chain.sh").write_text(CHAIN.replace("--time=60", "--time=60 --parsable"))
    assert site.seen(site.wrapper, [b"chain.sh"])[:2] == (0, b"101\n")


def test_mirages_options_may_stand_on_the_command_line(site: Site) -> None:
    site.real.write_text(SUBMITTING)
    assert b": 7 time limits" in site.seen(site.wrapper, [b"--segments", b"7", b"chain.sh"])[2]


def test_a_script_is_found_as_sbatch_finds_it(site: Site) -> None:
    site.real.write_text(SUBMITTING)
    (site.root / "sub").mkdir()
    (site.root / "chain.sh").rename(site.root / "sub" / "chain.sh")
    assert (
        site.seen(site.wrapper, [b"--chdir", b"sub", b"chain.sh"])[1]
        == b"Submitted batch job 101\n"
    )
    (site.root / "sub" / "chain.sh").rename(site.real.parent / "chain.sh")
    assert site.seen(site.wrapper, [b"chain.sh"])[1] == b"Submitted batch job 103\n"
