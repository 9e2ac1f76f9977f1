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
from pathlib import Path

from benchmarks.chain_goodput import WARM_S, month_cluster
from mirage.config import PolicyConfig
from mirage.daemon.impact import guard_in
from mirage.models.shipped import shipped
from mirage.ports import Advice, Observation
from mirage.provision.chains.run import CLUSTER, Scenario, busy_cluster, run_chains
from mirage.provision.learn.ranges import outside
from mirage.provision.policies.learned import LearnedPolicy, fall_back, states_of, unusable
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

    row: dict[str, object] = {"background": name, "nodes": scenario.link_nodes, "method": method}
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", required=True, type=Path)
    parser.add_argument("--method", default="quantile")
    parser.add_argument("--seeds", default="1,2", help="of the demo's cluster (1,2)")
    parser.add_argument("--months", default="2023-02", help="months of the trace (2023-02)")
    parser.add_argument("--nodes", default="2,8", help="nodes of a link (2,8)")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    for nodes in map(int, args.nodes.split(",")):
        for seed in filter(None, args.seeds.split(",")):
            scenario = Scenario(seed=int(seed), link_nodes=nodes)
            rows.append(case(f"demo {seed}", args.method, scenario, args.trace))
        for month in filter(None, args.months.split(",")):
            scenario = replace(
                Scenario(), chains=1, lasts_s=24 * DAY_S, link_nodes=nodes, warm_up_s=WARM_S
            )
            rows.append(case(month, args.method, scenario, args.trace))
        args.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
