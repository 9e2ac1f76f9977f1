"""Elastic training jobs on a Slurm: their files, their tasks in the queue, their controller.

A task is a Slurm job: the coordinator, a worker or a parameter server (PS) of an elastic job.
Start with `plan.py`, which decides, and `controller.py`, which has it carried out.
"""
