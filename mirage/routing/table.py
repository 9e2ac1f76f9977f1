"""The text files that the plugin reads: `routing.state` (new with each cycle), and, where there are
agents, `routing.agents` (seldom new).

    mirage-agents 3 ADLER32 BYTES             mirage-state 3 ADLER32 BYTES
    partition A100 paper 2 1209600            at 1700000000 120 AGENTS-ADLER32
    flavor s-A100 2 64 262144 259200 1        place A100
    layer 6 32                                nodes 2 256 1048576 8 a100
    row ... (bias, then one row an input)     wait 1 3600 120
                                              partition A100
                                              server n1 1 8 256 1048576 8 256 1048576 0 0
                                              queued 691200 0 0 1 0
                                              waits 0 0 3600 7200

Places are for jobs that no agent decides about (`places.py`). Without agents AGENTS-ADLER32 is 0, and
there is no `partition`.

The first line has the checksum and the length of the rest, so that neither half a file nor a
changed one is believed. Adler-32 (RFC 1950) because plain Lua 5.1 can compute it: it finds
accidents, not enemies; the folder's owner is trusted. Files are written beside and renamed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mirage.errors import InputError, MirageError
from mirage.routing.agent import Agent, Layer
from mirage.routing.decide import Table
from mirage.routing.flavors import Flavor, PartitionKind
from mirage.routing.places import ExpectedWait, NodeShape, Place
from mirage.routing.state import PartitionState, Server, Variant
from slurm_sim.files import write_whole

AGENTS, STATE = "routing.agents", "routing.state"
FORMAT = 3
_AGAIN = "Publish again (`mirage route publish`)"


def agents_text(agents: Sequence[Agent]) -> str:
    """Weights are written so that reading them gives the very same doubles."""
    return _sealed(
        "mirage-agents", "".join(f"{line}\n" for agent in agents for line in _agent_lines(agent))
    )


def _agent_lines(agent: Agent) -> Iterator[str]:
    kind = agent.kind
    sizes = (agent.variant.value, kind.servers, kind.longest_s)
    yield f"partition {kind.name} {' '.join(map(str, sizes))}"
    for flavor in kind.flavors:
        each = (flavor.gpus, flavor.cpus, flavor.memory_mib, flavor.limit_s, flavor.servers)
        yield f"flavor {flavor.name} {' '.join(map(str, each))}"
    for layer in agent.layers:
        yield f"layer {len(layer.weights)} {len(layer.bias)}"
        for row in (layer.bias, *layer.weights):
            yield f"row {' '.join(map(repr, row))}"


def state_text(table: Table, agents: str = "") -> str:
    """``agents``: the text of `agents_text` that the state is for; empty: there are none."""
    lines = [f"at {table.at_s} {table.valid_s} {_adler(agents) if agents else 0}"]
    for place in table.places:
        lines += _place_lines(place)
    for state in table.partitions:
        lines.append(f"partition {state.kind.name}")
        lines += (_server_line(server) for server in state.servers)
        lines.append(f"queued {' '.join(map(str, (state.queued_s, *state.queued)))}")
        lines.append(f"waits {' '.join(map(str, state.waits_s))}")
    return _sealed("mirage-state", "".join(f"{line}\n" for line in lines))


def _place_lines(place: Place) -> Iterator[str]:
    yield f"place {place.name}"
    for shape in place.shapes:
        numbers = (shape.count, shape.cpus, shape.memory_mib, shape.gpus)
        yield f"nodes {' '.join(map(str, numbers))} {shape.gpu_type}"
    for row in place.waits:
        yield f"wait {row.nodes} {row.limit_s} {row.wait_s}"


def _server_line(server: Server) -> str:
    numbers = (int(server.up), *server.total, *server.free, server.next_end_s, server.last_end_s)
    return f"server {server.name} {' '.join(map(str, numbers))}"


def _sealed(kind: str, body: str) -> str:
    return f"{kind} {FORMAT} {zlib.adler32(body.encode())} {len(body.encode())}\n{body}"


def _adler(text: str) -> int:
    return zlib.adler32(text.encode())


def write(folder: Path, name: str, text: str) -> None:
    """Puts a file in place in one step, readable by all. Raises MirageError."""
    path = folder / name
    try:
        write_whole(path, text, 0o644)
    except OSError as error:
        raise MirageError(
            f"{path}: can't be written ({error.strerror}); is {folder} there, and yours?"
        ) from error


# --- reading
# ---------------------------------------------------------------------------------------------------------


def read_agents(path: Path) -> tuple[list[Agent], int]:
    """The agents, and the checksum by which states name them. Raises InputError."""
    text, lines = _opened(path, "mirage-agents")
    blocks: list[list[list[str]]] = []
    for words in lines:
        if words[0] == "partition":
            blocks.append([])
        blocks[-1].append(words)
    try:
        return [_agent(block) for block in blocks], _adler(text)
    except (ValueError, IndexError) as error:
        raise InputError(
            f"{path}: not as `mirage route publish` writes it ({error}). {_AGAIN}."
        ) from error


def _agent(block: list[list[str]]) -> Agent:
    _, name, variant, servers, _ = block[0]
    flavors = tuple(
        Flavor(words[1], *map(int, words[2:])) for words in block if words[0] == "flavor"
    )
    # The plugin's table has no hardware and no watts: no decision needs them.
    kind = PartitionKind(
        name=name,
        servers=int(servers),
        gpus=0,
        cpus=0,
        memory_mib=0,
        idle_w=0.0,
        busy_w=0.0,
        flavors=flavors,
    )
    rows = iter([tuple(map(float, words[1:])) for words in block if words[0] == "row"])
    layers = [_layer(int(words[1]), rows) for words in block if words[0] == "layer"]
    return Agent(kind, Variant(variant), tuple(layers))


def _layer(inputs: int, rows: Iterator[tuple[float, ...]]) -> Layer:
    bias = next(rows, ())
    return Layer(tuple(next(rows, ()) for _ in range(inputs)), bias)


def read_state(path: Path, kinds: Iterable[PartitionKind] = ()) -> tuple[Table, int]:
    """The state, and the checksum of the agents that it is for (0: none). Raises InputError."""
    _, lines = _opened(path, "mirage-state")
    known = {kind.name: kind for kind in kinds}
    try:
        _, at_s, valid_s, agents = lines[0]
        places = tuple(map(_place, _blocks(lines[1:], "place")))
        blocks = _blocks(lines[1:], "partition") if known else ()
        states = tuple(_state(block, known) for block in blocks)
        return Table(int(at_s), int(valid_s), states, places), int(agents)
    except (KeyError, ValueError, IndexError) as error:
        raise InputError(
            f"{path}: not as `mirage route publish` writes it ({error}). {_AGAIN}."
        ) from error


def _blocks(lines: list[list[str]], head: str) -> Iterator[list[list[str]]]:
    """Each line that begins with this word, with those that belong to it."""
    heads = [number for number, words in enumerate(lines) if words[0] in ("place", "partition")]
    for first, last in zip(heads, [*heads[1:], len(lines)], strict=True):
        if lines[first][0] == head:
            yield lines[first:last]


def _place(block: list[list[str]]) -> Place:
    shapes = [words[1:] for words in block if words[0] == "nodes"]
    waits = [tuple(map(int, words[1:])) for words in block if words[0] == "wait"]
    return Place(
        name=block[0][1],
        shapes=tuple(
            NodeShape(
                count=int(words[0]),
                cpus=int(words[1]),
                memory_mib=int(words[2]),
                gpus=int(words[3]),
                gpu_type=words[4],
            )
            for words in shapes
        ),
        waits=tuple(ExpectedWait(nodes=row[0], limit_s=row[1], wait_s=row[2]) for row in waits),
    )


def _state(block: list[list[str]], known: dict[str, PartitionKind]) -> PartitionState:
    state = PartitionState(known[block[0][1]], [])
    for words in block[1:]:
        if words[0] == "server":
            state.servers.append(_server(words))
        elif words[0] == "queued":
            state.queued_s, *state.queued = map(int, words[1:])
        else:
            state.waits_s = list(map(int, words[1:]))
    return state


def _server(words: list[str]) -> Server:
    up, *numbers = map(int, words[2:])
    return Server(
        name=words[1],
        total=(numbers[0], numbers[1], numbers[2]),
        free=(numbers[3], numbers[4], numbers[5]),
        next_end_s=numbers[6],
        last_end_s=numbers[7],
        up=bool(up),
    )


def _opened(path: Path, kind: str) -> tuple[str, list[list[str]]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: can't be read ({error}). {_AGAIN}.") from error
    head, _, body = text.partition("\n")
    if f"{head}\n{body}" != _sealed(kind, body):
        raise InputError(f"{path}: not whole, changed, or of another version. {_AGAIN}.")
    return text, [line.split(" ") for line in body.splitlines()]
