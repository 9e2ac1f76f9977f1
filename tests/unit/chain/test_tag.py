from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.chain.tag import ChainTag, format_tag, parse_tag, submitted_tag
from mirage.domain import Mode, Penalties

SOUND = "mirage/1 chain=k3m9pq2xha seg=2/5 pred=123 mode=train ei=1 eo=0.5"
TAG = ChainTag(
    chain_id="k3m9pq2xha",
    segment=2,
    segments=5,
    predecessor_id=123,
    mode=Mode.TRAIN,
    penalties=Penalties(1.0, 0.5),
)


def test_the_tag_is_as_documented() -> None:
    assert format_tag(TAG) == SOUND
    assert parse_tag(SOUND) == TAG


@pytest.mark.parametrize(
    "line",
    [
        f"sbatch -N1 --comment={SOUND} --dependency=afterany:123 /home/a/job.sh 2 123",
        f"sbatch --comment={SOUND} -- my own job.sh",
        f"sbatch '--comment={SOUND}' job.sh",
        f'sbatch --comment="{SOUND}"',
    ],
)
def test_the_tag_is_found_in_the_command_line_of_a_submission(line: str) -> None:
    assert submitted_tag(line) == SOUND


@pytest.mark.parametrize(
    "line", ["", "sbatch job.sh", f"sbatch job.sh {SOUND}", f"sbatch --comment={SOUND}.5.5 x"]
)
def test_other_command_lines_have_none(line: str) -> None:
    assert submitted_tag(line) == ""


def test_the_tag_tells_to_what_backfill_may_shorten_a_link() -> None:
    tag = replace(TAG, lead_s=300, time_min_s=7200)
    assert format_tag(tag) == f"{SOUND} lead=300 min=7200"
    assert parse_tag(f"{SOUND} lead=300 min=7200 -- mine") == tag
    assert parse_tag(f"{SOUND} min=7200") == replace(TAG, time_min_s=7200)
    assert parse_tag(f"{SOUND} min=0") is None
    assert parse_tag(f"{SOUND} min=7200 lead=300") is None


def test_the_tag_tells_which_replica_of_which_service_a_chain_is() -> None:
    words = SOUND.replace("train", "service") + " svc=llama-3.1_70b rep=12"
    tag = replace(TAG, mode=Mode.SERVICE, service="llama-3.1_70b", replica=12)
    assert format_tag(tag) == words
    assert parse_tag(f"{words} -- mine") == tag
    assert parse_tag(f"{words} cost=60 ready=7") == replace(tag, handover_s=60, ready_s=7)
    assert submitted_tag(f"sbatch --comment='{words}' job.sh") == words
    assert parse_tag(f"{SOUND} svc=a") is None
    assert parse_tag(f"{SOUND} svc=../a rep=1") is None
    assert parse_tag(f"{SOUND} svc=a rep=0") is None


def test_the_lead_of_the_chains_signal_is_its_last_word() -> None:
    tag = replace(TAG, lead_s=300)
    assert format_tag(tag) == f"{SOUND} lead=300"
    assert parse_tag(f"{SOUND} lead=300 -- mine") == tag
    assert (
        submitted_tag(f"sbatch --comment='{SOUND} lead=300 -- mine' job.sh") == f"{SOUND} lead=300"
    )


def test_the_least_run_and_the_cost_of_a_handover_follow_the_lead() -> None:
    tag = replace(TAG, lead_s=300, least_run_s=7200, handover_s=0)
    assert format_tag(tag) == f"{SOUND} lead=300 least=7200 cost=0"
    assert parse_tag(f"{SOUND} lead=300 least=7200 cost=0 -- mine") == tag
    assert parse_tag(f"{SOUND} cost=540") == replace(TAG, handover_s=540)


def test_a_service_tells_its_up_time_its_start_up_and_when_this_link_was_ready() -> None:
    tag = replace(
        TAG, mode=Mode.SERVICE, least_run_s=7200, uptime=0.9995, handover_s=480, ready_s=1790000000
    )
    words = SOUND.replace("train", "service") + " least=7200 up=99.95 cost=480 ready=1790000000"
    assert format_tag(tag) == words
    assert parse_tag(f"{words} -- mine") == tag
    assert submitted_tag(f"sbatch --comment='{words} -- mine' job.sh") == words
    assert parse_tag(f"{SOUND} ready=0") == replace(TAG, ready_s=0)
    assert format_tag(replace(tag, down_s=86)) == f"{words} down=86"


def test_the_first_link_has_no_predecessor() -> None:
    first = ChainTag(
        chain_id="k3m9pq2xha",
        segment=1,
        segments=5,
        predecessor_id=None,
        mode=Mode.SERVICE,
        penalties=Penalties(),
    )
    assert format_tag(first) == "mirage/1 chain=k3m9pq2xha seg=1/5 mode=service ei=1 eo=1"
    assert parse_tag(format_tag(first)) == first


@pytest.mark.parametrize("comment", ["mine", "a -- b", "pred=9 | mirage/1", "über\nzwei"])
def test_the_users_own_comment_follows_and_changes_nothing(comment: str) -> None:
    assert format_tag(TAG, comment) == f"{SOUND} -- {comment}"
    assert parse_tag(f"{SOUND} -- {comment}") == TAG


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "(null)",
        "my job",
        f" {SOUND}",
        f"{SOUND} mine",
        SOUND.replace("mirage/1", "mirage/2"),
        SOUND.replace("k3m9pq2xha", "short"),
        SOUND.replace("k3m9pq2xha", "K3M9PQ2XHA"),
        SOUND.replace("k3m9pq2xha", "../../etc"),
        SOUND.replace("k3m9pq2xha", "x" * 33),
        SOUND.replace("2/5", "0/5"),
        SOUND.replace("2/5", "6/5"),
        SOUND.replace("2/5", "2/99999"),
        SOUND.replace("2/5", "+2/5"),
        SOUND.replace("2/5", "٢/5"),
        SOUND.replace("pred=123 ", ""),
        SOUND.replace("pred=123", "pred=0"),
        SOUND.replace("pred=123", "pred=4294967296"),
        SOUND.replace("seg=2/5", "seg=1/5"),
        SOUND.replace("train", "teach"),
        SOUND.replace("ei=1 ", "ei=nan "),
        SOUND.replace("ei=1 ", "ei=-1 "),
        SOUND.replace("ei=1 ", "ei=1000001 "),
        SOUND.replace("ei=1 ", "ei=1e3 "),
        SOUND.replace("ei=1 eo=0.5", "eo=0.5 ei=1"),
        f"{SOUND} lead=0",
        f"{SOUND} lead=-5",
        f"{SOUND} lead=65536",
        f"{SOUND} lead=99999999999999999999",
        f"{SOUND} lead=300 lead=300",
        f"{SOUND} lead=3e2",
        f"{SOUND} least=0",
        f"{SOUND} cost=-1",
        f"{SOUND} cost=12345678",
        f"{SOUND} cost=5 lead=300",
        f"{SOUND} up=0",
        f"{SOUND} up=100.1",
        f"{SOUND} up=99.9%",
        f"{SOUND} up=99.99999",
        f"{SOUND} cost=5 up=99",
        f"{SOUND} ready=-1",
        f"{SOUND} ready=12345678901",
        f"{SOUND} ready=5 cost=5",
        f"{SOUND} ready=5 down=-1",
        f"{SOUND} down=5",
    ],
)
def test_anything_malformed_is_no_tag(comment: str) -> None:
    assert parse_tag(comment) is None


@given(
    st.from_regex(r"[a-z0-9]{6,32}", fullmatch=True),
    st.integers(1, 9999),
    st.integers(0, 9998),
    st.integers(1, 0xFFFFFFFF),
    st.sampled_from(Mode),
    st.integers(0, 10**12),
    st.integers(1, 10**12),  # not both zero
    st.integers(0, 65535),
    st.none() | st.integers(1, 10**6),
    st.none() | st.integers(0, 10**10 - 1),
    st.integers(0, 10**7 - 1),
    st.text(),
)
def test_what_is_written_can_be_read_back(
    chain: str,
    segment: int,
    more: int,
    job_id: int,
    mode: Mode,
    micro_ei: int,
    micro_eo: int,
    lead_s: int,
    uptime_ppm: int | None,
    ready_s: int | None,
    down_s: int,
    comment: str,
) -> None:
    penalties = Penalties(micro_ei / 10**6, micro_eo / 10**6)
    predecessor = None if segment == 1 else job_id
    tag = ChainTag(
        chain_id=chain,
        segment=segment,
        segments=min(9999, segment + more),
        predecessor_id=predecessor,
        mode=mode,
        penalties=penalties,
        lead_s=lead_s,
        uptime=None if uptime_ppm is None else uptime_ppm / 10**4 / 100,
        ready_s=ready_s,
        down_s=down_s if ready_s is not None else 0,
    )
    assert parse_tag(format_tag(tag, comment)) == tag


@given(st.text())
def test_no_comment_makes_it_fail(comment: str) -> None:
    assert parse_tag(comment) is None
