"""A picture of a network: GPUs, nodes, switches, and on each link its bandwidth and its jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import networkx as nx
import numpy as np

from mirage.figures.svg import circle, line, rect, text
from mirage.placement.topology import Bools, Topology
from slurm_sim.files import write_whole

ROW = 22.0
"""Height of a GPU's row, in units that are pixels on a desktop."""
COLUMN = 165.0
MARGIN = 150.0
LABEL_AT = 0.32
"""Where on a link its words stand, as a share from the left: there the links are apart."""
_COLOURS = (
    *("#2d6ca8", "#e0762f", "#17897b", "#bf3f78", "#6f52b5", "#b28a00"),
    *("#5a9630", "#3fa7c9", "#9c3d3d", "#4b5d8f", "#8c6a55", "#6f7780"),
)
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1b2025; }
.page { fill: #ffffff; } .place { fill: #1b2025; } .free { fill: #d8dde2; }
.idle { stroke: #d8dde2; stroke-width: 1.5; }
.one { stroke: #2d6ca8; stroke-width: 2.5; }
.shared { stroke: #c4512d; stroke-width: 4; }
.link { font-size: 10px; paint-order: stroke; stroke: #ffffff; stroke-width: 3px; }
"""


def save_picture(path: Path, topology: Topology, assigned: Bools, names: Sequence[str]) -> None:
    """Writes an SVG file. ``names``: of the jobs, in the order of ``assigned`` [J, M]."""
    write_whole(path, picture(topology, assigned, names))


def picture(topology: Topology, assigned: Bools, names: Sequence[str]) -> str:
    """The SVG's text: GPUs on the left, then what they hang on, step by step to the right.

    A link of one job is blue, one of several is red and thick; a GPU has the colour of its job.
    """
    where = _positions(topology)
    width = MARGIN + max(x for x, _ in where.values()) + MARGIN
    height = ROW * (len(topology) + 3)
    jobs = topology.jobs_on_links(assigned)
    parts = [rect(0, 0, width, height, "page"), text(8, 16, topology.source)]
    labels = []
    for (one, other), rows in sorted(jobs.items()):
        gb_per_s = float(topology.graph.edges[one, other]["gb_per_s"])
        count = {0: "", 1: ", 1 job"}.get(len(rows), f", {len(rows)} jobs")
        tip = f"{gb_per_s:g} GB/s: {', '.join(names[row] for row in rows) or 'no job'}"
        style = "idle" if not rows else "one" if len(rows) == 1 else "shared"
        (x1, y1), (x2, y2) = sorted((where[one], where[other]))
        parts.append(line(x1, y1, x2, y2, style, tip=tip))
        words = f"{gb_per_s:g} GB/s{count}"
        x, y = x1 + LABEL_AT * (x2 - x1), y1 + LABEL_AT * (y2 - y1)
        labels.append(text(x, y + 3, words, "link", "middle"))
    parts += [*labels, *_gpus(topology, assigned, names, where), *_places(topology, where)]
    colours = "".join(f".job{nth} {{ fill: {colour}; }}" for nth, colour in enumerate(_COLOURS))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' width="{width:.0f}" height="{height:.0f}"><style>{_STYLE}{colours}</style>'
        f"{''.join(parts)}</svg>\n"
    )


def _positions(topology: Topology) -> dict[str, tuple[float, float]]:
    """x by the number of links to the nearest GPU, y the mean of the GPUs at that distance."""
    names = [gpu.name for gpu in topology.gpus]
    rows: dict[str, list[float]] = {}
    steps: dict[str, int] = {}
    for nth, name in enumerate(names):
        for place, distance in nx.single_source_shortest_path_length(topology.graph, name).items():
            if distance < steps.get(place, len(topology.graph)):
                steps[place], rows[place] = distance, []
            if distance == steps[place]:
                rows[place].append(nth)
    return {
        place: (MARGIN + COLUMN * steps[place], ROW * (float(np.mean(rows[place])) + 2))
        for place in steps
    }


def _gpus(
    topology: Topology,
    assigned: Bools,
    names: Sequence[str],
    where: dict[str, tuple[float, float]],
) -> list[str]:
    parts = []
    for nth, gpu in enumerate(topology.gpus):
        x, y = where[gpu.name]
        held = np.nonzero(assigned[:, nth])[0]
        style = f"job{held[0] % len(_COLOURS)}" if len(held) else "free"
        job = f"  {names[held[0]]}" if len(held) else ""
        parts.append(rect(x - 7, y - 7, 14, 14, style, f"{gpu.name}{job or '  free'}"))
        parts.append(text(x - 12, y + 4, f"{gpu.name}{job}", "", "end"))
    return parts


def _places(topology: Topology, where: dict[str, tuple[float, float]]) -> list[str]:
    gpus = {gpu.name for gpu in topology.gpus}
    parts = []
    for place, (x, y) in sorted(where.items()):
        if place not in gpus:
            parts += [circle(x, y, 4, "place", place), text(x + 8, y - 6, place)]
    return parts
