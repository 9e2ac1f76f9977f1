"""`mirage doctor`: what of Mirage will work on a site. `survey` asks, `slurm`, `users` and
`service` judge.
"""
