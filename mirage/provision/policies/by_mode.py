"""Which policy decides about which chain: by its mode, and by whether its owner set penalties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mirage.domain import Mode, Penalties
from mirage.ports import Advice, BatchPolicy, Observation, Policy


@dataclass(frozen=True, kw_only=True)
class ByMode:
    """Implements `mirage.ports.BatchPolicy`. Its name is that of ``pair``; an advice names the
    policy where another one decided.
    """

    pair: Policy
    """Of chains whose owners set penalties."""
    train: Policy
    """Of other training chains."""
    service: Policy
    """Of other services."""

    @property
    def name(self) -> str:
        return self.pair.name

    @property
    def words(self) -> str:
        """Who decides about which chains."""
        service = f"{words_of(self.service)} (services), {self.pair.name}"
        if self.train is self.pair:
            return f"{service} (other chains)"
        return f"{self.train.name} (training chains), {service} (chains with penalties)"

    def decide(self, observation: Observation) -> Advice:
        return self.decide_all([observation])[0]

    def decide_all(self, observations: Sequence[Observation]) -> list[Advice]:
        chosen = [self._of(each) for each in observations]
        answers: dict[int, Advice] = {}
        for policy in (self.pair, self.train, self.service):
            mine = [at for at, each in enumerate(chosen) if each is policy and at not in answers]
            found = decided(policy, [observations[at] for at in mine])
            answers |= zip(mine, (self._named(advice, policy) for advice in found), strict=True)
        return [answers[at] for at in range(len(observations))]

    def _of(self, observation: Observation) -> Policy:
        if observation.uptime is not None:
            return self.service
        is_plain = observation.mode is Mode.TRAIN and observation.penalties == Penalties()
        return self.train if is_plain else self.pair

    def _named(self, advice: Advice, policy: Policy) -> Advice:
        return advice if policy is self.pair else replace(advice, policy=policy.name)


def decided(policy: Policy, observations: Sequence[Observation]) -> list[Advice]:
    """An answer to each, in order."""
    if isinstance(policy, BatchPolicy):
        return policy.decide_all(observations)
    return [policy.decide(observation) for observation in observations]


def words_of(policy: Policy) -> str:
    """Which policy decides about which chains, for people."""
    return str(getattr(policy, "words", policy.name))
