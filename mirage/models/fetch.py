"""The trained models that are not in the package: one archive beside a release (models/README.md).

Its checksum is here, so it may come from any mirror, and each folder's own checksums count too.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from mirage.errors import InputError, MirageError
from mirage.models.folder import check_folder, replace_folder
from mirage.models.recipe import RECIPE
from slurm_sim.files import read_bytes

SHA256 = "0c96e4fd047aa24a15cd232fab8e211e62d418e64e3e413411033999667d2479"
"""Of the archive that `scripts/build-models` makes."""
MOST_BYTES = 64 << 20
PATIENCE_S = 60
"""For a server that does not answer."""
_WEB = ("http://", "https://")


def fetch(source: str, out: Path) -> list[Path]:
    """The folders below ``out``, `out/<cluster>/<method>`, from a file or an address. A model that
    is there is replaced.

    Raises InputError: the archive is another one, or a folder has files that are no model.
    MirageError: no answer.
    """
    content = _downloaded(source) if source.startswith(_WEB) else _read(Path(source))
    if (found := hashlib.sha256(content).hexdigest()) != SHA256:
        raise InputError(
            f"{source}: not the models of this version: its SHA-256 is {found}, expected {SHA256}."
            " Take the archive of the same release."
        )
    return _unpack(content, out)


def _read(file: Path) -> bytes:
    try:
        return read_bytes(file, MOST_BYTES)
    except OSError as error:
        raise InputError(f"{file}: can't be read ({error.strerror}).") from error


def _downloaded(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:  # noqa: S310 - checked
            content: bytes = answer.read(MOST_BYTES)
            return content
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise MirageError(
            f"{address}: not fetched ({error}). Download it by other means, and give the file."
        ) from error


def _unpack(content: bytes, out: Path) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    found = []
    with tempfile.TemporaryDirectory(prefix=".models-", dir=out) as name:
        fresh = Path(name)
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            # Its content is known by the checksum, so its names lead nowhere else.
            for member in archive.getmembers():
                if (file := archive.extractfile(member)) is not None:
                    path = fresh / member.name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(file.read())
        for recipe in sorted(fresh.glob(f"models/*/*/{RECIPE}")):
            folder = out / recipe.parent.relative_to(fresh / "models")
            check_folder(recipe.parent)
            folder.parent.mkdir(exist_ok=True)
            replace_folder(recipe.parent, folder)
            found.append(folder)
    return found
