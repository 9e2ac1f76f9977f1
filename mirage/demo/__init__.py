"""`mirage demo`: the daemon's own code on a simulated, contended GPU cluster."""
