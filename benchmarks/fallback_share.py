"""How often a trained policy leaves its decision to the fallback, and what that costs.

    .venv/bin/python -m benchmarks.fallback_share --trace ../shared/traces/ls6_a100_dev.csv.gz

Chains of 48-hour jobs on the demo's cluster and beside the recorded jobs of a month that the model
was not trained on, decided by the daemon's own code and the shipped model. Two guards: by effect
(the service's), and by column, for comparison: one input far beyond training is enough. Printed and
written: the share of decisions by fallback, by code, and hours interrupted and held twice.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.chain_goodput import WARM_S, month_cluster
from mirage.config import PolicyConfig
from mirage.daemon.impact import guard_in
from mirage.models.shipped import shipped
from mirage.ports import Advice, Observation
from mirage.provision.chains.run import CLUSTER, Scenario, busy_cluster, run_chains
from mirage.provision.learn.drawing import EpisodePlan, fixed_pair
from mirage.provision.learn.inputs import read_inputs
from mirage.provision.learn.model import States
from mirage.provision.learn.ranges import clipped, outside
from mirage.provision.learn.sampler import LabelledEpisode, label
from mirage.provision.policies.learned import (
    LearnedPolicy,
    changes_answer,
    fall_back,
    states_of,
    unusable,
)
from mirage.provision.policies.registry import make_pair_policy
from slurm_sim import Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

OUT = Path(__file__).with_suffix(".json")


@dataclass
class Counting:
    """The policy, and how many of its decisions about running pairs each guard took."""

    policy: LearnedPolicy
    by_column: bool
    decisions: int = 0
    codes: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, observation: Observation) -> Advice:
        advice = self._column_guard(observation) or self.policy.decide(observation)
        if observation.remaining_s is not None:
            self.decisions += 1
            if code := guard_in(advice.reason):
                self.codes[code] += 1
        return advice

    def _column_guard(self, observation: Observation) -> Advice | None:
        about = self.policy.about
        if not self.by_column or observation.remaining_s is None or unusable(observation, about):
            return None
        states = states_of([observation])
        (words,) = outside(about.ranges, states.matrices, states.remaining_s)
        problem = f"out-of-range: {words}"
        return fall_back(self.policy.fallback, observation, problem) if words else None


def case(name: str, method: str, scenario: Scenario, trace: Path) -> dict[str, object]:
    """One background, both guards."""

    def make(it: Scenario) -> Simulator:
        return busy_cluster(it) if name.startswith("demo") else month_cluster(trace, name, it)

    days = scenario.lasts_s // DAY_S
    row: dict[str, object] = {
        "background": name,
        "nodes": scenario.link_nodes,
        "days": days,
        "method": method,
    }
    for guard in ("by effect", "by column"):
        model = PolicyConfig(name=method, model=str(shipped(CLUSTER) / method))
        learned = make_pair_policy(model)
        assert isinstance(learned, LearnedPolicy)
        policy = Counting(learned, guard == "by column")
        result = run_chains(scenario, lambda _, it=policy: it, lambda _: None, make)
        total = result.total()
        row[guard] = {
            "decisions": policy.decisions,
            "by_fallback": round(policy.codes.total() / max(policy.decisions, 1), 4),
            "codes": dict(policy.codes),
            "interrupted_h": round(total.interrupted_s / HOUR_S, 1),
            "held_twice_h": round(total.held_twice_s / HOUR_S, 1),
            "handovers": total.handovers,
        }
    print(row, flush=True)
    return row


def of_episodes(method: str, trace: Path, month: str, count: int) -> dict[str, object]:
    """The same of labelled pairs that begin at even distances in a month, half of them on 8 nodes:
    the share of decision points that each guard takes.
    """
    policy = make_pair_policy(PolicyConfig(name=method, model=str(shipped(CLUSTER) / method)))
    assert isinstance(policy, LearnedPolicy)
    background = read_inputs(trace, shipped(CLUSTER) / "cluster.toml", None).background
    begin_s = int(datetime.fromisoformat(f"{month}-01").replace(tzinfo=UTC).timestamp())
    points, by_column, by_effect, loads = 0, 0, 0, Counter[str]()
    for number, at_s in enumerate(np.linspace(begin_s, begin_s + 20 * DAY_S, count).astype(int)):
        labelled = label(background, EpisodePlan(int(at_s), fixed_pair((1, 8)[number % 2])))
        if not isinstance(labelled, LabelledEpisode):
            continue
        states = States.of(labelled.episode)
        far = outside(policy.about.ranges, states.matrices, states.remaining_s)
        matrices, left_s = clipped(policy.about.ranges, states.matrices, states.remaining_s)
        said = policy.model.assess(states)
        at_edge = policy.model.assess(replace(states, matrices=matrices, remaining_s=left_s))
        rows = [row for row, words in enumerate(far) if words]
        points, by_column = points + len(states), by_column + len(rows)
        by_effect += sum(changes_answer(said, at_edge, row) for row in rows)
        loads[labelled.episode.load.value] += 1
    return {
        "background": f"pairs of {month}",
        "method": method,
        "episodes": dict(loads),
        "decision_points": points,
        "by column": round(by_column / points, 4),
        "by effect": round(by_effect / points, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", required=True, type=Path)
    parser.add_argument("--method", default="quantile")
    parser.add_argument("--seeds", default="1,2", help="of the demo's cluster (1,2)")
    parser.add_argument("--months", default="2023-02", help="months of the trace (2023-02)")
    parser.add_argument("--nodes", default="2,8", help="nodes of a link (2,8)")
    parser.add_argument("--days", type=int, default=24, help="length of a chain in days (24)")
    parser.add_argument(
        "--episodes", type=int, default=0, help="labelled pairs instead of chains (0)"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    if args.episodes:
        for month in args.months.split(","):
            rows.append(of_episodes(args.method, args.trace, month, args.episodes))
            print(rows[-1], flush=True)
        args.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        return
    chain = Scenario(chains=1, lasts_s=args.days * DAY_S)
    for nodes in map(int, args.nodes.split(",")):
        for seed in filter(None, args.seeds.split(",")):
            scenario = replace(chain, seed=int(seed), link_nodes=nodes)
            rows.append(case(f"demo {seed}", args.method, scenario, args.trace))
        for month in filter(None, args.months.split(",")):
            scenario = replace(chain, link_nodes=nodes, warm_up_s=WARM_S)
            rows.append(case(month, args.method, scenario, args.trace))
        args.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
