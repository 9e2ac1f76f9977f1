"""How good each method is: every choice has an exact outcome, and every figure an interval
(docs/evaluation.md).

    from mirage.provision.evaluation import EvaluationPlan, evaluate

    result = evaluate(EvaluationPlan(trace=Path("jobs.csv.gz"), cluster=Path("cluster.toml"),
                                     methods=("quantile", "avg"), start_s=1_675_209_600,
                                     episodes=120, out=Path("report")))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirage.provision.evaluation.run import EvaluationPlan, EvaluationResult, evaluate

__all__ = ["EvaluationPlan", "EvaluationResult", "evaluate"]


def __getattr__(name: str) -> Any:
    # pandas and the simulator take a second to import, and parts of this room do without them.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mirage.provision.evaluation import run

    return getattr(run, name)
