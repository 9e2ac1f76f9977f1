"""How good each method is: every choice has an exact outcome, and every figure an interval
(docs/evaluation.md).
"""
