"""The tables of docs/routing.md from the results of `mirage route evaluate`.

    python -m benchmarks.routing_tables RESULTS.json [KEPT.json]

With KEPT.json the figures are also kept there, without curves and hours.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

STREAMS = "| rule | completion, h | to `-p A,B` | p95, h | longest wait, h | utilization | energy to `-p A,B` |"
EPISODES = "| rule | utilization | least | hours until the full job | inefficient, kWh |"


def stream_row(name: str, rule: dict[str, Any]) -> str:
    ratio, energy = (
        "{:.3f} ({:.3f} to {:.3f})".format(*rule[key])
        for key in ("completion_to_all", "energy_to_all")
    )
    return (
        f"| {name} | {rule['completion_mean_h']:.1f} | {ratio} | {rule['completion_p95_h']:.0f} |"
        f" {rule['wait_max_h']:.0f} | {rule['utilization']:.3f} | {energy} |"
    )


def episode_row(name: str, rule: dict[str, Any]) -> str:
    return (
        f"| {name} | {rule['utilization']:.3f} | {rule['utilization_least']:.2f} |"
        f" {rule['run_h']:.0f} | {rule['inefficient_kwh']:,.0f} |"
    )


def main() -> None:
    results = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for name, part in results["paper"].items():
        print(f"\n{name}\n\n{EPISODES}\n" + "| --- " * 5 + "|")
        print("\n".join(episode_row(*item) for item in part["rules"].items()))
        part.pop("learning", None)
    for name, rules in results["streams"].items():
        print(f"\n{name}, {rules['agents']['streams']} streams\n\n{STREAMS}\n" + "| --- " * 7 + "|")
        print("\n".join(stream_row(*item) for item in rules.items()))
        for rule in rules.values():
            rule.pop("hourly", None)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
