"""The runtime of elastic training jobs: training whose workers and parameter servers come and go.

Source: Peng et al., "DL2", section 5. It works without a scheduler: each member is a process of its
own, started with the job's folder by whoever has room for it.

    python -m mirage.elastic.runtime.coordinator --folder F
    python -m mirage.elastic.runtime.server --folder F --name s1
    python -m mirage.elastic.runtime.worker --folder F --name w1 -- train.py ARGUMENTS

`mirage.elastic.runtime.client` asks and changes a running job; docs/elastic-runtime.md is the
user's page.
"""
