"""The simulator's rules in plain Python, to be read first: `simulator.py` says where each is."""
