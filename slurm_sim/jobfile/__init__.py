"""Files of jobs: reading them, and making them fit a cluster before they are simulated."""
