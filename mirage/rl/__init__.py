"""What every learner stands on, whatever it schedules.

`options` needs no torch. `fit` trains round by round and keeps the best weights. `replay` remembers,
`targets` is for Q-learning, `policy`, `reinforce` and `ppo` for policy gradients.
Nothing here knows a system: a learner brings its network, its environment and its score.
"""
