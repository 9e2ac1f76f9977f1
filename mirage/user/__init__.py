"""A user's own chains as commands need them: found by their names, read from who knows of them, steered
and ended. It works without a service, from the chains' folders and Slurm.
"""
