"""Agents that decide about the links of whole chains, learned by policy gradient and by Q-learning.

usage: python -m benchmarks.chain_agents train --tables DIR --held-out DIR --out DIR
           [--kind pg|dqn] [--seeds 1,2,3,4,5] [--hidden 32] [--rounds N] [--device auto]
       python -m benchmarks.chain_agents look --tables DIR [--models DIR] [--out JSON]
       python -m benchmarks.chain_agents run --models DIR [--policies "goodput;pg;dqn"] [--seeds 1,2]
           [--months 2023-02] [--nodes 2] [--chains 1] [--out JSON]

`train` learns on tables (`chain_tables`), `look` scores the rule, agents and who knows all waits on
tables, `run` runs chains beside the real queue with the service's decisions (`chain_goodput`).

A state is a pair: the predecessor's release time and now. Waiting changes nothing, so a table has
the outcome of every release. Values of all states follow by sums backwards over release times, for
any policy, without sampling (`Episodes.values`). The return is time lost: interruptions, and ten
minutes a handover. An agent is a small network of `chain_tables.state_of`, added to the rule's
log-odds: it begins as the rule.

pg   the exact gradient of the expected share of time lost, over chains that begin on many days:
     dJ = sum over states of P(state) * (loss of a release - loss of waiting) * d pi(release | state)
dqn  Q(release) - Q(wait), in hours, by regression on its own exact value under the greedy policy of
     a target network; the discount is 1, the return runs to the end of the episode
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.chain_goodput import TRACE, cases_of, policy_of, run_cases
from benchmarks.chain_tables import FEATURES, Chain, Moment, Table, last_times, state_of
from mirage.chain.progress import ChainProgress
from mirage.config import PolicyConfig
from mirage.domain import HANDOVER_S, Action
from mirage.ports import Advice, Observation, Policy
from mirage.provision.chains.run import Scenario
from mirage.provision.policies.goodput import too_many_short
from mirage.provision.policies.heuristics import no_wait_known, not_yet
from mirage.rl.fit import Stop, descend, fit, pick_device, seeded
from mirage.rl.targets import TargetNetwork
from slurm_sim import Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

BEGIN_EVERY = 12
"""Chains begin at every 12th time of a table, as long as half of it is left."""
RATES = {"pg": 1e-3, "dqn": 1e-3}
MOST_NORM = 1.0
STEPS = 10
"""Gradient steps between two scores."""
PARTS = {"pg": 12, "dqn": 16_384}
"""Tables that a gradient step of `pg` sees, states that one of `dqn` sees."""
COPY_EVERY = 50
MOST_H = 24.0
"""Advantages beyond this count as this."""
HOURS_A_LOG_ODD = 0.25
"""As what the rule's log-odds stand at the begin of Q-learning."""
EVEN = 0.1
"""Of a batch of `dqn`: states drawn evenly, not as often as they are visited."""


class Values(NamedTuple):
    """Of a policy on every table. Hours."""

    lost: Tensor
    """(B, T): from each release time on."""
    release: Tensor
    """(B, T, K): lost from there on if the successor is released at this state."""
    wait: Tensor
    """(B, T, K): if it is not."""
    before: Tensor
    """(B, T, K): the chance that it has not been released before."""
    chances: Tensor
    """(B, T, K): of a release there."""


class Episodes:
    """Tables as tensors: B tables, T release times, up to K times for the successor's release."""

    def __init__(self, tables: list[Table], device: torch.device) -> None:
        self.names = [f"{table.name}, {table.nodes}" for table in tables]
        lasts = [last_times(table.starts_s, table.times_s, table.limit_s) for table in tables]
        times = len(tables[0].times_s)
        most = max(last - at for found in lasts for at, last in enumerate(found))
        cost = np.zeros((len(tables), times, most), np.float32)
        forced = np.zeros((len(tables), times, most), bool)
        left = np.zeros((len(tables), times), np.float32)
        wall = np.ones((len(tables), times), np.float32)
        index = []
        for row, (table, last) in enumerate(zip(tables, lasts, strict=True)):
            begins, ends = table.starts_s, table.starts_s + table.limit_s
            left[row] = np.maximum(table.end_s - ends, 0) / HOUR_S
            wall[row] = np.maximum(table.end_s - begins, HOUR_S) / HOUR_S
            for at in range(times):
                if begins[at] >= table.end_s:
                    continue
                then = begins[at + 1 : min(last[at], times - 1) + 1]
                late_s = np.maximum(np.minimum(then, table.end_s) - ends[at], 0)
                lost_s = late_s + HANDOVER_S * (then < table.end_s)
                cost[row, at, : len(then)] = lost_s / HOUR_S
                if last[at] < times:
                    forced[row, at, last[at] - at - 1] = True
                count = table.offsets[at + 1] - table.offsets[at]
                index.append((row * times + at) * most + np.arange(count))
        self.cost, self.forced, self.left, self.wall = (
            torch.as_tensor(each, device=device) for each in (cost, forced, left, wall)
        )
        self.index = torch.as_tensor(np.concatenate(index), device=device)
        states = np.concatenate([table.states for table in tables]).astype(np.float32)
        self.states = torch.as_tensor(states, device=device)
        self.table = self.index // (times * most)
        """Of each state."""

    @property
    def begins(self) -> Tensor:
        """The times at which chains begin."""
        return torch.arange(0, self.cost.shape[1] // 2 + 1, BEGIN_EVERY, device=self.cost.device)

    def spread(self, flat: Tensor, rest: float = 0.0) -> Tensor:
        """(B, T, K) of one number a state."""
        full = torch.full_like(self.cost, rest)
        full.view(-1)[self.index] = flat
        return full

    def values(self, chances: Tensor) -> Values:
        """``chances``: one a state, of a release there."""
        full = torch.where(self.forced, 1.0, self.spread(chances))
        stays = torch.cumprod(1 - full, -1)
        before = torch.cat([torch.ones_like(stays[..., :1]), stays[..., :-1]], -1)
        taken = before * full
        tables, times, most = self.cost.shape
        lost = torch.zeros(tables, times + most, device=self.cost.device)
        own = (taken * self.cost).sum(-1) + stays[..., -1] * self.left
        for at in range(times - 1, -1, -1):
            later = (taken[:, at] * lost[:, at + 1 : at + 1 + most]).sum(-1)
            lost[:, at] = own[:, at] + later
        release = self.cost + lost.unfold(1, most, 1)[:, 1 : times + 1]
        wait, value = torch.empty_like(release), self.left
        for place in range(most - 1, -1, -1):
            wait[..., place] = value
            value = torch.lerp(value, release[..., place], full[..., place])
        return Values(lost[:, :times], release, wait, before, taken)

    def visits(self, values: Values) -> Tensor:
        """(B, T, K): how often a chain comes to each state, per hour of its time; over all begins."""
        tables, times, most = self.cost.shape
        visited = torch.zeros(tables, times + most, device=self.cost.device)
        begins = self.begins
        visited[:, begins] = 1 / self.wall[:, begins] / len(begins)
        for at in range(times):
            visited[:, at + 1 : at + 1 + most] += visited[:, at : at + 1] * values.chances[:, at]
        return visited[:, :times, None] * values.before

    def losses(self, values: Values) -> Tensor:
        """(B,): the mean share of time lost over all begins."""
        return (values.lost[:, self.begins] / self.wall[:, self.begins]).mean(-1)

    def least(self) -> Tensor:
        """(B,): the same of who knows all waits."""
        tables, times, most = self.cost.shape
        may = self.spread(torch.ones_like(self.states[:, 0])).bool() | self.forced
        lost = torch.zeros(tables, times + most, device=self.cost.device)
        for at in range(times - 1, -1, -1):
            then = self.cost[:, at] + lost[:, at + 1 : at + 1 + most]
            best = then.masked_fill(~may[:, at], torch.inf).amin(-1)
            stays = torch.where(self.forced[:, at].any(-1), torch.inf, self.left[:, at])
            lost[:, at] = torch.minimum(best, stays)
        return (lost[:, self.begins] / self.wall[:, self.begins]).mean(-1)

    def some(self, rows: Tensor) -> Episodes:
        """Of these tables alone."""
        found = object.__new__(Episodes)
        found.names = [self.names[row] for row in rows.tolist()]
        found.cost, found.forced = self.cost[rows], self.forced[rows]
        found.left, found.wall = self.left[rows], self.wall[rows]
        place = torch.full((len(self.cost),), -1, device=rows.device)
        place[rows] = torch.arange(len(rows), device=rows.device)
        chosen = place[self.table] >= 0
        size = self.cost[0].numel()
        found.index = self.index[chosen] % size + place[self.table[chosen]] * size
        found.states, found.table = self.states[chosen], place[self.table[chosen]]
        return found


class Agent(nn.Module):
    """Log-odds of a release (`pg`), or its advantage over waiting in hours (`dqn`)."""

    mean: Tensor
    spread: Tensor

    def __init__(self, hidden: int, rule: float) -> None:
        """``rule``: the weight of the rule's log-odds."""
        super().__init__()
        self.rule = rule
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("spread", torch.ones(FEATURES))
        self.inner = nn.Linear(FEATURES, hidden)
        self.outer = nn.Linear(hidden, 1)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def standardise(self, states: Tensor) -> None:
        self.mean.copy_(states.mean(0))
        self.spread.copy_(states.std(0).clamp(min=1e-3))

    def forward(self, states: Tensor) -> Tensor:
        """(n,) of states (n, FEATURES)."""
        inputs = ((states - self.mean) / self.spread).clamp(-5, 5)
        added: Tensor = self.outer(torch.tanh(self.inner(inputs))).squeeze(-1)
        return self.rule * states[:, 0] + added


def score(agent: Agent, episodes: Episodes) -> Tensor:
    """(B,): share of time lost if it releases wherever its answer is 0 or more."""
    with torch.no_grad():
        return episodes.losses(episodes.values((agent(episodes.states) >= 0).float()))


def pg_round(
    agent: Agent, episodes: Episodes, random: np.random.Generator, rate: float, part: int
) -> Callable[[int], float]:
    optimizer = torch.optim.Adam(agent.parameters(), rate)

    def train_round(_: int) -> float:
        total = 0.0
        for _step in range(STEPS):
            count = min(part, len(episodes.names))
            rows = random.choice(len(episodes.names), count, replace=False)
            chosen = episodes.some(torch.as_tensor(rows, device=episodes.cost.device))
            chances = torch.sigmoid(agent(chosen.states))
            with torch.no_grad():
                values = chosen.values(chances)
                weights = chosen.visits(values) * (values.release - values.wait)
                total += float(chosen.losses(values).mean())
            weight = weights.view(-1)[chosen.index]
            descend(optimizer, (weight * chances).sum() / count * 100, most_norm=MOST_NORM)
        return total / STEPS

    return train_round


def dqn_round(
    agent: Agent, episodes: Episodes, random: np.random.Generator, rate: float, part: int
) -> Callable[[int], float]:
    optimizer = torch.optim.Adam(agent.parameters(), rate)
    target = TargetNetwork(agent, COPY_EVERY)
    device = episodes.cost.device

    def look() -> tuple[Tensor, Tensor]:
        """Of each state: the advantage of a release, and how likely it is drawn."""
        with torch.no_grad():
            q = target.network(episodes.states)
            greedy = episodes.values((q >= 0).float())
            soft = episodes.values(torch.sigmoid(q / HOURS_A_LOG_ODD))
            visits = episodes.visits(soft).view(-1)[episodes.index]
            gain = (greedy.wait - greedy.release).view(-1)[episodes.index]
            drawn = (1 - EVEN) * visits / visits.sum() + EVEN / len(visits)
            return gain.clamp(-MOST_H, MOST_H), drawn.cumsum(0)

    seen = [look()]
    steps = [0]

    def train_round(_: int) -> float:
        total = 0.0
        for _step in range(STEPS):
            if steps[0] % COPY_EVERY == 0:
                seen[0] = look()
            gain, drawn = seen[0]
            points = torch.as_tensor(random.random(part), device=device, dtype=drawn.dtype)
            rows = torch.searchsorted(drawn, points * drawn[-1]).clamp(max=len(drawn) - 1)
            loss = nn.functional.mse_loss(agent(episodes.states[rows]), gain[rows])
            descend(optimizer, loss, most_norm=MOST_NORM)
            target.count_step()
            steps[0] += 1
            total += float(loss.detach())
        return total / STEPS

    return train_round


ROUNDS = {"pg": pg_round, "dqn": dqn_round}
RULE = {"pg": 1.0, "dqn": HOURS_A_LOG_ODD}


def load_tables(folder: Path) -> list[Table]:
    return [Table.load(path) for path in sorted(folder.glob("*.npz")) if ".part" not in path.name]


def train(args: argparse.Namespace) -> None:
    device = pick_device(args.device)
    episodes = Episodes(load_tables(args.tables), device)
    held_out = Episodes(load_tables(args.held_out), device)
    print(len(episodes.names), "tables,", len(episodes.states), "states", flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in map(int, args.seeds.split(",")):
        row = train_agent(args, seed, episodes, held_out)
        print(row, flush=True)


def train_agent(
    args: argparse.Namespace, seed: int, episodes: Episodes, held_out: Episodes
) -> dict[str, object]:
    """Writes the agent with the best score on ``held_out``, and its row beside it."""
    begun_s, kind = time.monotonic(), args.kind
    curve: list[tuple[float, float]] = []
    with seeded(seed) as random:
        agent = Agent(args.hidden, RULE[kind]).to(episodes.cost.device)
        agent.standardise(episodes.states)
        before = score(agent, episodes), score(agent, held_out)
        train_round = ROUNDS[kind](
            agent, episodes, random, args.rate or RATES[kind], args.part or PARTS[kind]
        )
        result = fit(
            agent,
            train_round,
            Stop(rounds=args.rounds, most_s=args.most_s),
            score=lambda: float(score(agent, held_out).mean()),
            score_first=True,
            progress=lambda row: curve.append((row.loss, row.score)),
        )
    after = score(agent, episodes), score(agent, held_out)
    name = f"{kind}{args.tag}-{seed}"
    weights = {key: value.cpu().numpy() for key, value in agent.state_dict().items()}
    np.savez(args.out / f"{name}.npz", rule=RULE[kind], **weights)
    row = {
        "agent": name,
        "tables": len(episodes.names),
        "held_out_tables": len(held_out.names),
        "hidden": args.hidden,
        "rounds": result.rounds,
        "best_round": 1 + int(np.argmin([each[1] for each in curve])),
        "wall_s": round(time.monotonic() - begun_s, 1),
        "train": [rounded(before[0].mean()), rounded(after[0].mean())],
        "held_out": [rounded(before[1].mean()), rounded(after[1].mean())],
    }
    (args.out / f"{name}.json").write_text(json.dumps(row) + "\n")
    return row


def rounded(value: Tensor) -> float:
    return round(float(value), 5)


def load_agents(folder: Path, kind: str) -> list[Agent]:
    """All of a kind, by name."""
    agents = []
    for path in sorted(folder.glob(f"{kind}-*.npz")):
        with np.load(path) as file:
            weights = {name: torch.as_tensor(file[name]) for name in file.files if name != "rule"}
            agent = Agent(len(weights["inner.weight"]), float(file["rule"]))
        agent.load_state_dict(weights)
        agents.append(agent.eval())
    return agents


class Together(nn.Module):
    """The mean answer of several agents."""

    def __init__(self, agents: list[Agent]) -> None:
        super().__init__()
        self.agents = nn.ModuleList(agents)

    def forward(self, states: Tensor) -> Tensor:
        return torch.stack([agent(states) for agent in self.agents]).mean(0)


@dataclass(frozen=True)
class AgentPolicy:
    """Decides as `Goodput` does, but by an agent. Implements `mirage.ports.Policy`."""

    agent: nn.Module
    name: str

    def decide(self, observation: Observation) -> Advice:
        predecessor = observation.predecessor
        length_s, now_s = predecessor.expected_limit_s, observation.now_s
        if predecessor.is_queueing:
            if length_s is None or predecessor.eligible_s is None:
                return Advice(action=Action.WAIT, reason="its predecessor has not started yet")
        elif advice := not_yet(observation) or too_many_short(observation):
            return advice
        moment = Moment.of(observation, PolicyConfig().goodput)
        if moment is None:
            return no_wait_known(observation)
        assert length_s is not None
        runs = predecessor.start_s is not None and not predecessor.is_queueing
        chain = Chain(
            length_s,
            float((predecessor.wait_s or 0) if runs else now_s - (predecessor.eligible_s or 0)),
            now_s - (predecessor.start_s or 0) if runs else None,
            observation.step_s,
            observation.handover_s,
        )
        state = torch.as_tensor(state_of(moment, chain), dtype=torch.float32)
        with torch.no_grad():
            answer = float(self.agent(state[None]))
        action = Action.RELEASE if answer >= 0 else Action.WAIT
        return Advice(action=action, reason=f"the agent's answer is {answer:.2f}")


def look(args: argparse.Namespace) -> None:
    """The rule, agents, and who knows all waits, on tables."""
    episodes = Episodes(load_tables(args.tables), torch.device("cpu"))
    rule = Agent(1, 1.0)
    found = {"rule": score(rule, episodes), "knows all waits": episodes.least()}
    for kind in args.kinds.split(",") if args.models else ():
        if agents := load_agents(args.models, kind):
            for seed, agent in enumerate(agents, 1):
                found[f"{kind}-{seed}"] = score(agent, episodes)
            found[kind] = score(Together(agents), episodes)  # type: ignore[arg-type]
    rows = [
        {"table": name} | {key: rounded(values[at]) for key, values in found.items()}
        for at, name in enumerate(episodes.names)
    ]
    for row in rows:
        print(row)
    print("mean", {key: rounded(values.mean()) for key, values in found.items()})
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1) + "\n")


def policy_for(text: str, models: Path, scenario: Scenario) -> Callable[[Simulator], Policy]:
    """An agent's name (`pg`: the mean of all seeds; `pg-1`), or a policy of `chain_goodput`."""
    kind, _, seed = text.partition("-")
    if not kind.startswith(tuple(ROUNDS)):
        return policy_of(text, scenario)[1]
    agents = load_agents(models, kind)
    chosen: nn.Module = agents[int(seed) - 1] if seed else Together(agents)
    return lambda _: AgentPolicy(chosen, text)


def run(args: argparse.Namespace) -> None:
    """Chains beside the real queue."""
    torch.set_num_threads(1)
    rows = json.loads(args.out.read_text()) if args.out.exists() else []
    done = {(row["background"], row["nodes"], row["policy"], row["chains"]) for row in rows}
    for nodes in map(int, args.nodes.split(",")):
        base = Scenario(
            chains=args.chains, has_one_user=False, lasts_s=28 * DAY_S, link_nodes=nodes
        )
        for name, (scenario, make) in cases_of(base, args.trace, args.months, args.seeds).items():
            for policy in args.policies.split(";"):
                if (name, nodes, policy, args.chains) in done:
                    continue
                begun_s = time.process_time()
                make_policy = policy_for(policy, args.models, scenario)
                parts, young = run_cases(scenario, make_policy, make(replace(scenario)), args.step)
                total = ChainProgress.of_all(parts)
                row = {
                    "background": name,
                    "nodes": nodes,
                    "policy": policy,
                    "chains": args.chains,
                    "goodput": round(total.goodput, 4),
                    "each": [round(part.goodput, 4) for part in parts],
                    "held_twice": round(total.held_twice_s / total.wall_s, 4),
                    "handovers": total.handovers,
                    "young": young,
                    "cpu_s": round(time.process_time() - begun_s, 1),
                }
                rows.append(row)
                print(row, flush=True)
                args.out.write_text(json.dumps(rows, indent=1) + "\n")


def add_training(training: argparse.ArgumentParser) -> None:
    training.add_argument("--tables", type=Path, required=True)
    training.add_argument("--held-out", type=Path, required=True)
    training.add_argument("--out", type=Path, required=True)
    training.add_argument("--kind", choices=sorted(ROUNDS), default="pg")
    training.add_argument("--tag", default="", help="in the agents' names")
    training.add_argument("--seeds", default="1,2,3,4,5")
    training.add_argument("--hidden", type=int, default=32)
    training.add_argument("--rounds", type=int, default=100, help=f"of {STEPS} gradient steps")
    training.add_argument("--rate", type=float, help="of learning")
    training.add_argument("--part", type=int, help="tables or states of a gradient step")
    training.add_argument("--most-s", type=float, default=None, help="seconds for a seed")
    training.add_argument("--device", default="auto")
    training.set_defaults(act=train)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(required=True)
    add_training(verbs.add_parser("train"))
    looking = verbs.add_parser("look")
    looking.add_argument("--tables", type=Path, required=True)
    looking.add_argument("--models", type=Path)
    looking.add_argument("--kinds", default="pg,dqn")
    looking.add_argument("--out", type=Path)
    looking.set_defaults(act=look)
    running = verbs.add_parser("run")
    running.add_argument("--models", type=Path)
    running.add_argument("--policies", default="goodput;pg;dqn")
    running.add_argument("--trace", type=Path, default=TRACE)
    running.add_argument("--months", default="")
    running.add_argument("--seeds", default="")
    running.add_argument("--nodes", default="2")
    running.add_argument("--chains", type=int, default=1)
    running.add_argument("--step", type=int, default=1800)
    running.add_argument("--out", type=Path, required=True)
    running.set_defaults(act=run)
    args = parser.parse_args()
    args.act(args)


if __name__ == "__main__":
    main()
