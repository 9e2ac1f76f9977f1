"""Which extra tasks leave so that others' jobs can start."""

from __future__ import annotations

from mirage.domain import ClusterNode, Job, JobState, Snapshot
from mirage.elastic.jobs.capacity import ClusterRoom
from mirage.elastic.jobs.tag import TaskTag, format_task_tag
from slurm_sim.config import ClusterConfig, Params, Partition, SelectType, named_nodes

NAMES = ("n1", "n2", "n3")
IDENT = "k3m9pq2xha"


def config(*, exclusive: bool = False) -> ClusterConfig:
    partition = Partition("gpu", NAMES, exclusive=exclusive)
    other = Partition("cpu", ("c1",))
    nodes = (*named_nodes(NAMES, cpus=4, gpus=2), *named_nodes(("c1",), cpus=8))
    return ClusterConfig(nodes, (partition, other), Params(select_type=SelectType.CONS_TRES))


def job(job_id: int, **changes: object) -> Job:
    values: dict[str, object] = {
        "user": "bob",
        "partition": "gpu",
        "state": JobState.RUNNING,
        "nodes": 1,
        "submit_s": job_id,
        "gpus": 1,
        "cpus": 1,
    } | changes
    return Job(job_id=job_id, **values)  # type: ignore[arg-type]


def worker(number: int, node: str, *, extra: bool = True, user: str = "alice") -> Job:
    comment = format_task_tag(TaskTag(job=IDENT, task=f"w{number}", is_extra=extra))
    return job(number, user=user, comment=comment, node_names=(node,))


def waiting(job_id: int = 100, **changes: object) -> Job:
    return job(job_id, state=JobState.PENDING, reason="Resources", **changes)


def room(*jobs: Job, exclusive: bool = False, user: str = "alice") -> ClusterRoom:
    nodes = tuple(
        ClusterNode(
            name=name, partitions=("gpu",) if name != "c1" else ("cpu",), up=True, idle=False
        )
        for name in (*NAMES, "c1")
    )
    return ClusterRoom(Snapshot(at_s=0, jobs=jobs, nodes=nodes), config(exclusive=exclusive), user)


def extras(count: int) -> set[tuple[str, str]]:
    """All workers."""
    return {(IDENT, f"w{number}") for number in range(1, count + 1)}


def given(cluster: ClusterRoom, count: int) -> list[str]:
    return [task for _, task in cluster.to_give_back(extras(count))]


def test_nothing_is_given_where_there_is_room() -> None:
    assert given(room(worker(1, "n1"), waiting(gpus=2)), 1) == []


def test_the_newest_extra_leaves_for_a_job_of_one_gpu() -> None:
    full = [worker(number, node) for number, node in enumerate(2 * NAMES, 1)]
    assert given(room(*full, waiting()), 6) == ["w4"]  # the newest on the first node


def test_whole_nodes_are_emptied_for_a_job_of_two_nodes() -> None:
    full = [worker(number, node) for number, node in enumerate(2 * NAMES, 1)]
    assert sorted(given(room(*full, waiting(nodes=2, gpus=4)), 6)) == ["w1", "w2", "w4", "w5"]


def test_the_node_with_the_fewest_extras_is_chosen() -> None:
    tasks = [worker(1, "n1"), worker(2, "n1"), worker(3, "n2"), job(9, node_names=("n3",), gpus=2)]
    assert given(room(*tasks, waiting(gpus=2)), 3) == ["w3"]


def test_nothing_is_given_for_a_job_that_would_not_start() -> None:
    tasks = [worker(1, "n1"), job(9, node_names=("n2",), gpus=2)]
    assert given(room(*tasks, waiting(nodes=3, gpus=6)), 1) == []


def test_each_waiting_job_gets_its_own_place() -> None:
    full = [worker(number, node) for number, node in enumerate(2 * NAMES, 1)]
    assert len(given(room(*full, waiting(100), waiting(101), waiting(102)), 6)) == 3


def test_base_tasks_stay() -> None:
    full = [worker(number, node, extra=False) for number, node in enumerate(2 * NAMES, 1)]
    assert given(room(*full, waiting()), 0) == []


def test_in_an_exclusive_partition_a_task_holds_its_node() -> None:
    tasks = [worker(1, "n1"), worker(2, "n2"), worker(3, "n3")]
    assert given(room(*tasks, waiting(), exclusive=True), 3) == ["w1"]


def test_tasks_that_leave_already_count_as_gone() -> None:
    full = [worker(number, node) for number, node in enumerate(2 * NAMES, 1)]
    cluster = room(*full, waiting())
    cluster.leave([(IDENT, "w2")])
    assert given(cluster, 6) == []


def test_who_contests_a_partition() -> None:
    assert room(waiting()).is_contested("gpu")
    assert room(waiting()).is_contested("")
    assert not room(waiting()).is_contested("cpu")
    assert not room(
        waiting(comment=format_task_tag(TaskTag(job=IDENT, task="w1", is_extra=True)))
    ).is_contested("gpu")
    assert not room(job(1, state=JobState.PENDING, reason="Dependency")).is_contested("gpu")
    assert not room(job(1, state=JobState.PENDING, reason="QOSMaxJobsPerUserLimit")).is_contested(
        "gpu"
    )


def test_anothers_job_with_our_tag_is_not_ours() -> None:
    assert room(worker(1, "n1", user="bob")).own == {}


def test_two_controllers_free_the_same_node_together() -> None:
    """Each has one of two GPUs of every node, so neither alone can make room."""
    shared = [worker(number, name) for number, name in enumerate(NAMES, 1)]
    shared += [worker(number + 10, name, user="bob") for number, name in enumerate(NAMES, 1)]
    jobs = (*shared, waiting(user="carol", gpus=2))
    found = {
        user: room(*jobs, user=user).to_give_back({(IDENT, f"w{first + nth}") for nth in range(3)})
        for user, first in (("alice", 1), ("bob", 11))
    }
    assert found == {"alice": [(IDENT, "w1")], "bob": [(IDENT, "w11")]}


def test_another_users_extra_is_not_free_for_the_policy() -> None:
    node = room(worker(1, "n1", user="bob")).nodes["n1"]
    assert (node.free_gpus, node.free_cpus) == (1, 3)


def kept(cluster: ClusterRoom, count: int, tasks: int) -> list[str]:
    return [task for _, task in cluster.keep_idle("gpu", count, extras(tasks))]


def test_a_reserve_takes_idle_nodes_first() -> None:
    cluster = room(worker(1, "n1"), worker(2, "n2"))
    assert kept(cluster, 1, 2) == []
    assert cluster.nodes["n3"].free_gpus == 0


def test_a_reserve_is_made_where_the_fewest_extras_leave() -> None:
    tasks = [worker(1, "n1"), worker(2, "n1"), worker(3, "n2"), job(9, node_names=("n3",))]
    assert kept(room(*tasks), 1, 3) == ["w3"]


def test_a_reserve_does_not_ask_for_the_last_node_nor_for_base_tasks() -> None:
    base = [worker(number, node, extra=False) for number, node in enumerate(NAMES, 1)]
    assert kept(room(*base), 3, 0) == []
    extra = [worker(number, node) for number, node in enumerate(NAMES, 1)]
    assert len(kept(room(*extra), 3, 3)) == 2
