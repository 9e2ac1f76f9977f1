"""When the successor of a chain's link enters the queue: policies, how they learn, how good they
are.
"""
