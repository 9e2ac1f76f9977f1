"""Job histories: reading, importing, cleaning, what they hide, and their figures (docs/traces.md).

Needs pandas and pyarrow; the simulator itself does not.
"""

from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.table import Trace, make_trace, read_trace, write_trace

__all__ = ["Trace", "TraceError", "make_trace", "read_trace", "write_trace"]
