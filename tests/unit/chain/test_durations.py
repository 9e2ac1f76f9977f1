from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.chain.durations import (
    format_duration,
    format_time_limit,
    parse_duration,
    parse_time_limit,
)

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90 * MINUTE),
        ("90:30", 90 * MINUTE + 30),
        ("1:30:05", HOUR + 30 * MINUTE + 5),
        ("2-3", 2 * DAY + 3 * HOUR),
        ("2-03:04", 2 * DAY + 3 * HOUR + 4 * MINUTE),
        ("2-03:04:05", 2 * DAY + 3 * HOUR + 4 * MINUTE + 5),
        ("0:30", 30),
        (" 5 ", 5 * MINUTE),
    ],
)
def test_every_form_of_sbatch_is_read(text: str, seconds: int) -> None:
    assert parse_time_limit(text) == seconds
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["UNLIMITED", "unlimited", "INFINITE", "infinite", "-1", "0", "0:00"]
)
def test_no_limit(text: str) -> None:
    assert parse_time_limit(text) is None


@pytest.mark.parametrize(
    "text",
    ["", "a", "1:", ":1", "1::2", "1:2:3:4", "1-", "-5", "1-2-3", "1-2:3:4:5", "1.5", "1\u0661"],
)
def test_anything_else_says_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="days-hours:minutes:seconds"):
        parse_time_limit(text)


def test_a_limit_beyond_slurms_32_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="4294967295"):
        parse_time_limit("4294967295")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5min", 300), ("5m", 300), ("2h", 7200), ("7 d", 7 * DAY), ("0", 0), ("0s", 0)],
)
def test_durations_may_carry_a_unit(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["UNLIMITED", "-1", "5 weeks", "1.5h", "s"])
def test_a_duration_has_an_end(text: str) -> None:
    with pytest.raises(ValueError, match="expected 90s"):
        parse_duration(text)


@given(st.integers(1, 400 * DAY))
def test_what_is_written_can_be_read_back(seconds: int) -> None:
    assert parse_time_limit(format_time_limit(seconds)) == seconds


def test_limits_look_like_squeues() -> None:
    assert format_time_limit(90061) == "1-01:01:01"
    assert format_time_limit(59) == "00:00:59"
    assert format_time_limit(None) == "UNLIMITED"
    with pytest.raises(ValueError, match="negative"):
        format_time_limit(-1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (7800, "2 h 10 min"),
        (3 * DAY, "3 d"),
        (3 * DAY + 59, "3 d"),
        (45, "45 s"),
        (61, "1 min 1 s"),
        (59.6, "1 min"),
        (0, "0 s"),
        (-0.2, "0 s"),
        (-90, "-1 min 30 s"),
    ],
)
def test_durations_for_people_name_the_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
