"""Small networks are slower on several threads."""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):
    import torch

    torch.set_num_threads(1)
