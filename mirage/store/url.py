"""Store URLs: which databases there are, and how an error names one without its password."""

from __future__ import annotations

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from mirage.errors import InputError

DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}
"""Of a URL's scheme, the dialect and the library that talks to the database."""
EXPECTED = "sqlite:////absolute/path, postgresql://USER:PASSWORD@HOST/DATABASE or mariadb://USER:PASSWORD@HOST/DATABASE"


def parse_url(text: str | URL) -> URL:
    """The URL with its driver. InputError, which never shows the text: it may have a password in
    it.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:  # ValueError: a port that is no number
        raise InputError(f"Store: not a URL of a store; expected {EXPECTED}") from error
    if url.drivername not in DRIVERS:
        raise InputError(f"Store: {url.drivername}:// is not known; expected {EXPECTED}")
    if url.drivername != "sqlite" and not (url.host and url.database):
        raise InputError(f"Store {shown(url)}: host or database is missing; expected {EXPECTED}")
    if url.drivername == "sqlite" and (url.host or url.query):
        raise InputError(
            f"Store {shown(url)}: expected sqlite:////absolute/path, sqlite:///relative/path or sqlite://"
        )
    return url.set(drivername=DRIVERS[url.drivername])


def shown(url: str | URL) -> str:
    """The URL as people may see it: without password and options, which may be secrets too. "?"
    where it is none.
    """
    try:
        url = make_url(url)
    except (ArgumentError, ValueError):
        return "?"
    dialect = url.drivername.partition("+")[0]
    return url.set(drivername=dialect, query={}).render_as_string(hide_password=True)
