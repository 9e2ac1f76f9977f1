"""The Cluster port: argv (pure), parsing (pure), one runner; the commands adapter and the simulated one."""
