"""Learning when to submit: labelled episodes from the simulator, and one algorithm a file."""
