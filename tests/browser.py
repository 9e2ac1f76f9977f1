"""A real Chromium without a screen, for the web page's tests and screenshots (`scripts/chromium-up`
installs it).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROGRAMS = ("chromium-headless-shell", "chromium")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Skips the test where there is none, or fails it where MIRAGE_BROWSER_REQUIRED is set."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        reason = f"needs one of {', '.join(PROGRAMS)}: scripts/chromium-up installs it"
        if os.environ.get("MIRAGE_BROWSER_REQUIRED"):
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root Chromium has no sandbox; /dev/shm may be small in containers.
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
        )
        try:
            yield browser
        finally:
            browser.close()
