"""Learning when to submit: labelled episodes from the simulator, and one algorithm a file.

from mirage.provision.learn import TrainingPlan, train

train(TrainingPlan(trace=Path("jobs.csv.gz"), cluster=Path("cluster.toml"),
methods=("quantile",), out=Path("models/mine/quantile")))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirage.provision.learn.plan import TrainingPlan
    from mirage.provision.learn.run import TrainingInterrupted, TrainingResult, train

__all__ = ["TrainingInterrupted", "TrainingPlan", "TrainingResult", "train"]


def __getattr__(name: str) -> Any:
    # pandas and the simulator take a second to import, and the service needs parts of this room
    # without them.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mirage.provision.learn import run

    return getattr(run, name)
