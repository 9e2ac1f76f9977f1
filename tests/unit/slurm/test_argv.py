from __future__ import annotations

import pytest

from mirage.slurm import argv

NONCE = "|0123456789abcdef|"


def test_a_nonce_is_new_each_time_and_slurm_takes_it_as_a_suffix():
    nonces = {argv.new_nonce() for _ in range(100)}
    assert len(nonces) == 100
    for nonce in nonces:  # -O ends a field at a comma, and takes digits after the colon for a width
        assert not nonce[0].isdigit()
        assert "," not in nonce
        assert len(nonce) >= 16


def test_every_field_of_squeue_ends_with_the_nonce_which_is_not_on_the_command_line():
    assert argv.squeue() == ["squeue", "-h", "-a", "-r", "--noconvert"]
    (format_,) = argv.squeue_format(NONCE).values()
    assert format_.split(",") == [f"{name}:{NONCE}" for name in argv.SQUEUE_FIELDS]


def test_sacct_is_asked_for_free_text_in_fields_of_fixed_width_alone():
    free = {
        "Comment",
        "JobName",
        "SubmitLine",
        "AdminComment",
        "SystemComment",
        "WCKey",
        "WorkDir",
        "Constraints",
    }
    assert not free & set(argv.SACCT_FIELDS)
    (command,) = argv.submit_lines(0, 10, ["alice"])
    assert not {"-p", "-P"} & set(command)
    for field in command[command.index("-o") + 1].split(","):
        assert int(field.partition("%-")[2]) > 0


def test_squeue_asks_for_jobs_in_any_state_by_id_once_each():
    command = argv.squeue([7, 3, 7])
    assert command[command.index("-t") + 1] == "all"
    assert command[command.index("-j") + 1] == "3,7"


def test_squeue_asks_for_everything_rather_than_for_too_many_ids():
    command = argv.squeue(range(1, argv.MAX_IDS + 2))
    assert "all" in command
    assert "-j" not in command


def test_sacct_has_an_explicit_window_in_utc_that_includes_its_last_second():
    (command,) = argv.sacct(1_700_000_000, 1_700_000_060)
    assert command[command.index("-S") + 1] == "2023-11-14T22:13:20"
    assert command[command.index("-E") + 1] == "2023-11-14T22:14:21"
    assert {"-X", "-P", "-D", "-n", "-a"} <= set(command)


def test_sacct_from_the_beginning_of_time_is_not_sacct_without_a_start():
    (command,) = argv.sacct(0, 10)
    assert command[command.index("-S") + 1] == "1970-01-01T00:00:01"


def test_many_ids_are_split_over_commands_of_bounded_length():
    ids = range(4_000_000_000, 4_000_002_500)
    commands = argv.sacct(0, 10, ids)
    asked = [int(job) for command in commands for job in command[-1].split(",")]
    assert asked == list(ids)
    assert max(len(argument) for command in commands for argument in command) < 128 * 1024
    assert [len(command) - 1 for command in argv.cancel(ids)] == [1000, 1000, 500]


def test_no_ids_means_no_command():
    assert argv.sacct(0, 10, []) == []
    assert argv.cancel([]) == []


def test_sbatch_options_come_before_the_script():
    assert argv.sbatch(["-t", "2", "--comment=a b"], "job.sh") == [
        "sbatch", "--parsable", "-t", "2", "--comment=a b", "job.sh",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (argv.squeue(), True),
        (argv.sinfo(), True),
        (argv.sacct(0, 1)[0], True),
        (argv.submissions(0, 1, ["alice"])[0], True),
        (argv.submit_lines(0, 1, ["alice"])[0], True),
        (argv.node_events(0, 1), True),
        (argv.settings(), True),
        (argv.release(1), True),
        (argv.sbatch([], "Dependency="), False),
        (argv.cancel([1])[0], False),
        (["scontrol", "update", "JobId=1", "Dependency=after:2"], False),
        (["scontrol", "requeue", "1"], False),
    ],
)
def test_only_commands_that_may_run_twice_are_repeated(command, expected):
    assert argv.may_be_repeated(command) is expected
