"""Collected samples are the same however they were made, go on after an interruption, and are never
mixed up.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mirage.errors import InputError
from mirage.provision.learn import TrainingPlan
from mirage.provision.learn import samples as module
from mirage.provision.learn.augment import ScaledLoad
from mirage.provision.learn.background import Background
from mirage.provision.learn.course import Course
from mirage.provision.learn.drawing import Drawing, fixed_pair
from mirage.provision.learn.episode import AUGMENTED_LEAD_S, HISTORY, JITTER_S, Episode, Load, span
from mirage.provision.learn.samples import Samples, collect
from mirage.provision.learn.shards import HEADER, SHARD, Shard, ShardFolder
from tests.learn_site import DAY_S, EPOCH_S, HOUR_S, background, cluster, trace
from tests.toy import Toy

COUNT = 38
DRAWING = Drawing(
    count=COUNT,
    seed=7,
    begin_s=EPOCH_S + 8 * DAY_S,
    end_s=EPOCH_S + 30 * DAY_S,
    pairs=(fixed_pair(1, 2 * HOUR_S), fixed_pair(2, 2 * HOUR_S)),
    augmentations=(ScaledLoad(0.9),),
    augmented=0.3,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("samples") / "toy"
    collect(background(), DRAWING, path)
    return path


@pytest.fixture
def samples(folder: Path) -> Samples:
    return Samples.load(folder)


def assert_equal(one: Episode, other: Episode) -> None:
    arrays = ("rows", "decision_s", "successor_start_s", "forecast_s")
    for name in arrays:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).dtype == getattr(other, name).dtype
    plain = replace(one, **{name: getattr(other, name) for name in arrays})
    assert vars(plain) == vars(other)


def test_what_is_read_is_what_was_labelled(samples: Samples) -> None:
    found = module.label(background(), DRAWING.plan(3))
    assert_equal(samples[3], found.episode)  # type: ignore[union-attr]
    assert len(samples) + sum(samples.dropped.values()) == COUNT
    assert samples.tally["running"] > 0
    assert {episode.tags["augmentation"] for episode in samples} == {"", "load x0.9"}


def test_two_workers_collect_the_same(folder: Path, tmp_path: Path) -> None:
    collect(background(), DRAWING, tmp_path / "two", workers=2)
    for file in sorted(folder.iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def test_a_collection_goes_on_where_it_was(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, label, calls = tmp_path / "resumed", module.label, 0

    def interrupted(site: Background, plan: object) -> object:
        nonlocal calls
        calls += 1
        if calls > SHARD + 2:
            raise KeyboardInterrupt
        return label(site, plan)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "label", interrupted)
    with pytest.raises(KeyboardInterrupt):
        collect(background(), DRAWING, path)
    assert sorted(file.name for file in path.iterdir()) == ["00000.npz", HEADER]
    with pytest.raises(
        InputError, match=f"only 1 of {-(-COUNT // SHARD)} files are there; collect again"
    ):
        Samples.load(path)
    monkeypatch.setattr(module, "label", label)
    told: list[tuple[int, int]] = []
    assert len(collect(background(), DRAWING, path, progress=lambda *done: told.append(done))) > 0
    assert told[0] == (SHARD, COUNT)
    assert told[-1] == (COUNT, COUNT)
    assert (path / "00001.npz").read_bytes() == (folder / "00001.npz").read_bytes()


def test_when_the_time_is_up_it_keeps_what_there_is_and_a_later_call_goes_on(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "short"
    assert collect(background(), DRAWING, path, until_s=0).tried == SHARD
    assert collect(background(), DRAWING, path, until_s=0).tried == SHARD
    assert collect(background(), DRAWING, path).tried == COUNT
    assert (path / "00001.npz").read_bytes() == (folder / "00001.npz").read_bytes()


def test_what_comes_after_the_range_is_not_used(folder: Path, tmp_path: Path) -> None:
    collect(background().until(DRAWING.end_s), DRAWING, tmp_path / "cut")
    for name in ("00000.npz", HEADER):
        assert (tmp_path / "cut" / name).read_bytes() == (folder / name).read_bytes()


def test_a_whole_collection_is_not_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "label", None)
    assert len(collect(background(), DRAWING, folder)) > 0


@pytest.mark.parametrize(
    ("site", "drawing", "what"),
    [
        (background(), replace(DRAWING, seed=8), r"drawing \(seed\)"),
        (
            background(),
            replace(DRAWING, count=5, augmented=0.1),
            r"drawing \(count\), drawing \(augmented\)",
        ),
        (replace(background(), cluster=replace(cluster(), name="other")), DRAWING, "cluster"),
        (
            replace(background(), log=background().log.between(0, EPOCH_S + 29 * DAY_S)),
            DRAWING,
            "trace",
        ),
    ],
)
def test_samples_of_something_else(
    folder: Path, site: Background, drawing: Drawing, what: str
) -> None:
    with pytest.raises(InputError, match=f"holds samples of another {what}; give another folder"):
        collect(site, drawing, folder)


def test_a_folder_of_other_things(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(InputError, match="is not empty, and holds no samples"):
        collect(background(), DRAWING, tmp_path)


def test_no_samples(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no samples"):
        Samples.load(tmp_path)


def test_another_schema(tmp_path: Path) -> None:
    (tmp_path / HEADER).write_text(json.dumps({"schema": 99}))
    with pytest.raises(InputError, match="is not of schema 3"):
        Samples.load(tmp_path)


@pytest.mark.parametrize("left", [0, 100, 5000])
def test_a_damaged_file(folder: Path, tmp_path: Path, left: int) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "00001.npz").write_bytes((folder / "00001.npz").read_bytes()[:left])
    with pytest.raises(InputError, match=r"00001\.npz: is damaged .*remove it and collect again"):
        Samples.load(tmp_path)


def test_an_empty_shard_can_be_kept(tmp_path: Path) -> None:
    shards = ShardFolder.opened(
        tmp_path / "empty", {"drawing": {"count": 1}, "trace": {}, "cluster": {}}
    )
    shards.write(0, Shard(dropped=module.Counter(history_ends=1)))
    loaded = Samples.load(tmp_path / "empty")
    assert (len(loaded), loaded.dropped["history_ends"]) == (0, 1)


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    header: dict[str, object] = {"drawing": {"count": 1}, "trace": {}, "cluster": {}}
    shards = ShardFolder.opened(tmp_path / "begun", header)
    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shards.write(0, Shard())
    assert [file.name for file in shards.path.iterdir()] == [HEADER]
    with pytest.raises(KeyboardInterrupt):
        ShardFolder.opened(tmp_path / "new", header)
    assert not any((tmp_path / "new").iterdir())


def test_a_pair_wider_than_the_cluster_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="13 nodes"):
        collect(
            background(),
            replace(DRAWING, pairs=(fixed_pair(1, HOUR_S), fixed_pair(13, HOUR_S))),
            tmp_path / "x",
        )
    assert not (tmp_path / "x").exists()


PLAN = TrainingPlan(trace=Path("t.csv"), cluster=Path("c.toml"), methods=(), out=Path("m"))


def test_the_kinds_of_augmentation_are_chosen_by_name() -> None:
    def names(*kinds: str) -> list[str]:
        plan = replace(PLAN, begin_s=EPOCH_S + 8 * DAY_S, augmentations=kinds)
        course = Course.of(replace(background(), trace=trace()), plan)
        made = course.training(replace(background(), trace=trace())).augmentations
        return [augmentation.name for augmentation in made]

    assert names("load") == ["load 0.8", "load 0.95", "load 1.1"]
    assert names("users", "synthetic") == ["users", "synthetic weeks 1, UTC"]
    with pytest.raises(InputError, match="augmentation 'weeks': there is none of this name"):
        names("weeks")
    course = Course.of(background(), replace(PLAN, augmentations=("synthetic",)))
    with pytest.raises(InputError, match="there is none at hand"):
        course.training(background())


def test_fresh_episodes_end_where_the_training_part_does(tmp_path: Path) -> None:
    until_s = EPOCH_S + 20 * DAY_S
    plan = replace(PLAN, begin_s=EPOCH_S + 8 * DAY_S, until_s=until_s)
    course = Course.of(background(), plan)
    drawing = replace(course.online(background()), count=25)
    episodes = collect(background(), drawing, tmp_path)
    assert max(int(episode.successor_start_s.max()) for episode in episodes) <= until_s
    assert Counter(bool(episode.tags["augmentation"]) for episode in episodes)[True] > 5


def test_a_split_in_time_shares_nothing(samples: Samples) -> None:
    at_s = EPOCH_S + 20 * DAY_S
    before, after = samples.split(at_s)
    assert len(before) > 5
    assert len(after) > 2
    assert (
        max(span(episode)[1] for episode in before)
        <= at_s
        <= min(span(episode)[0] for episode in after)
    )


@pytest.mark.parametrize("seed", range(5))
def test_what_is_held_out_shares_no_second_with_the_rest(samples: Samples, seed: int) -> None:
    rest, held = samples.hold_out(0.4, seed, block_s=4 * DAY_S)
    for episode in held:
        begin_s, end_s = span(episode)
        assert all(other[1] <= begin_s or end_s <= other[0] for other in map(span, rest))


def test_what_is_held_out_is_as_busy_as_the_whole() -> None:
    """Else training stops by quiet weeks, and keeps the weights that never release."""

    def episode(day: int) -> Episode:
        waits_h = {0: 1, 1: 1, 2: 20}[day % 3] if day < 40 else 1  # busy only in the first part
        return Toy(limit_h=2).make(
            EPOCH_S + day * DAY_S, 1, waits_h * HOUR_S, np.random.default_rng(day)
        )

    whole = Samples(tuple(map(episode, range(120))), Counter(), Counter())
    for seed in range(5):
        rest, held = whole.hold_out(0.2, seed)
        busy = [np.mean([it.load is Load.HEAVY for it in part]) for part in (rest, held)]
        assert busy == pytest.approx([13 / 120, 13 / 120], abs=0.1)
        assert len(held) >= 12


def test_augmented_episodes_hold_the_weeks_that_they_are_made_of() -> None:
    plain = Toy(limit_h=2).make(EPOCH_S, 1, HOUR_S, np.random.default_rng(0))
    augmented = replace(plain, tags={"augmentation": "users"})
    assert span(augmented) == (EPOCH_S - AUGMENTED_LEAD_S, span(plain)[1] + JITTER_S)
    earlier = replace(
        plain,
        decision_s=plain.decision_s - 5 * DAY_S,
        successor_start_s=plain.successor_start_s - 5 * DAY_S,
    )
    earlier = replace(earlier, predecessor_end_s=plain.predecessor_end_s - 5 * DAY_S)
    samples = Samples((earlier,), Counter(), Counter())
    assert len(samples.apart_from([plain])) == 1
    assert len(samples.apart_from([plain, augmented])) == 0


def test_too_little_to_hold_out(samples: Samples) -> None:
    with pytest.raises(InputError, match="too short a time to stop training early"):
        samples.hold_out(0.2, 1, block_s=300 * DAY_S)


def test_batches_go_once_through_all_points(samples: Samples) -> None:
    batches = list(samples.batches(100, seed=3))
    seen = [
        (int(e), int(k))
        for batch in batches
        for e, k in zip(batch.episode, batch.point, strict=True)
    ]
    assert len(seen) == len(set(seen)) == samples.points
    assert seen != sorted(seen)
    assert {len(batch.episode) for batch in batches[:-1]} == {100}
    batch = batches[0]
    assert (batch.matrices.shape, batch.matrices.dtype) == ((100, HISTORY, 40), np.float32)
    episode, point = samples[int(batch.episode[5])], int(batch.point[5])
    np.testing.assert_array_equal(batch.matrices[5], episode.windows[point])
    assert batch.interruption_s[5] == episode.interruption_s[point]
    assert batch.overlap_s[5] == episode.overlap_s[point]
    assert batch.remaining_s[5] == episode.remaining_s[point]


def test_a_few_points_of_each_episode(samples: Samples) -> None:
    episodes = np.concatenate(
        [batch.episode for batch in samples.batches(64, seed=3, per_episode=4)]
    )
    assert np.bincount(episodes).tolist() == [4] * len(samples)


def test_a_seed_fixes_the_batches(samples: Samples) -> None:
    one, other, third = (next(iter(samples.batches(64, seed))) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.matrices, other.matrices)
    assert not np.array_equal(one.matrices, third.matrices)


def test_the_summary_counts(samples: Samples) -> None:
    found = samples.summary()
    assert (
        found["episodes"]
        == len(samples)
        == sum(found["load"].values())
        == sum(found["augmentation"].values())
    )
    assert found["points"] == sum(len(episode) for episode in samples)
