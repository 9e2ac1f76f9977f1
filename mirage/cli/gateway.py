"""`mirage gateway NAME:PORT`: one address for a service, however often its links change."""

from __future__ import annotations

import argparse
import asyncio
import re
import shlex
import sys
import time
from pathlib import Path

from mirage.chain.durations import parse_duration
from mirage.chain.service import make_services_folder, service_folder
from mirage.cli.signals import ending_on_sigterm
from mirage.errors import InputError
from mirage.gateway.endpoints import find_service
from mirage.gateway.gateway import Gateway, GatewaySettings, Proxy
from mirage.gateway.haproxy import HAProxy
from mirage.gateway.nginx import Nginx
from mirage.gateway.proxy_config import haproxy_config, nginx_config
from mirage.gateway.tokens import Tokens, make_token
from mirage.user.scaler import scaling

PORT = 8080
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_NAMED = re.compile(r"([^:/]+)(?::(\d{1,5}))?", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Passes clients' requests on to the links of a service that are ready: to the one with the"
        " fewest, never to one that leaves, and to another one where one is dead. Requests wait"
        " while none is ready. Keeps HAProxy or nginx in step too (docs/endpoints.md)."
    )
    parser.add_argument(
        "services",
        nargs="+",
        metavar="NAME[:PORT]",
        help=f"service, and the port on which clients find it (default: {PORT})",
    )
    parser.add_argument(
        "--bind",
        default="127.0.0.1",
        metavar="HOST",
        help="address to listen on; 0.0.0.0: all of this machine (default: 127.0.0.1)",
    )
    parser.add_argument(
        "--tcp",
        action="store_true",
        help="not HTTP but another protocol, as of a database: connections are passed on, without tokens",
    )
    parser.add_argument(
        "--wait",
        default="10min",
        metavar="D",
        help="time that a request waits for a replica to be ready, then 503 (default: 10min)",
    )
    parser.add_argument(
        "--drain",
        default="5min",
        metavar="D",
        help="time that open requests have at a link that leaves; at most --handover-grace (default: 5min)",
    )
    _add_tokens(parser)
    _add_proxies(parser)


def _add_tokens(parser: argparse.ArgumentParser) -> None:
    token = parser.add_mutually_exclusive_group()
    token.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with the tokens that clients may give, one a line, mode 0600"
        " (default: ~/.mirage/services/NAME/token, made at the first start)",
    )
    token.add_argument("--no-token", action="store_true", help="service for all who reach the port")


def _add_proxies(parser: argparse.ArgumentParser) -> None:
    proxy = parser.add_mutually_exclusive_group()
    proxy.add_argument(
        "--haproxy", metavar="SOCKET", help="stats socket of an HAProxy to keep in step"
    )
    proxy.add_argument(
        "--nginx", type=Path, metavar="FOLDER", help="folder for NAME.conf, which nginx includes"
    )
    parser.add_argument(
        "--reload",
        default="nginx -s reload",
        metavar="CMD",
        help="command that makes nginx read its files again (default: nginx -s reload)",
    )
    parser.add_argument(
        "--print-config",
        choices=["haproxy", "nginx"],
        help="the proxy's configuration, on standard output, and nothing else",
    )


def run(args: argparse.Namespace) -> int:
    named = [_named(text) for text in args.services]
    if len({port for _, port in named}) < len(named):
        raise InputError("give each service a port of its own: NAME:PORT NAME:PORT")
    if args.print_config:
        for name, port in named:
            print(_config(args, name, port), end="")
        return 0
    gateways = [_gateway(args, name, port) for name, port in named]
    with ending_on_sigterm(), scaling(lambda: True):
        asyncio.run(_together(gateways))
    return 0


async def _together(gateways: list[Gateway]) -> None:
    await asyncio.gather(*(gateway.run() for gateway in gateways))


def _named(text: str) -> tuple[str, int]:
    match = _NAMED.fullmatch(text)
    if not match or not 1 <= (port := int(match[2] or PORT)) <= 65535:
        raise InputError(f"{text!r} is not NAME:PORT, such as chat:8080")
    return match[1], port


def _gateway(args: argparse.Namespace, name: str, port: int) -> Gateway:
    service = find_service(name)
    make_services_folder()
    folder = service_folder(name)
    folder.mkdir(mode=0o700, exist_ok=True)
    tokens = None if args.tcp or args.no_token else _tokens(args, name)
    if tokens is None and not args.tcp and args.bind not in LOOPBACK:
        print(
            f"mirage gateway: note: whoever reaches {args.bind}:{port} may ask {name}: there is no token",
            file=sys.stderr,
        )
    settings = GatewaySettings(
        service=service,
        folder=folder,
        host=args.bind,
        port=port,
        tokens=tokens,
        is_http=not args.tcp,
        wait_s=_seconds("wait", args.wait),
        drain_s=_seconds("drain", args.drain),
    )
    return Gateway(settings, _proxy(args, name, port, tokens), _say)


def _tokens(args: argparse.Namespace, name: str) -> Tokens:
    path = _token_file(args, name)
    if not args.token_file and make_token(path):
        _say(f"a token for {name} is in {path}: clients give it as `Authorization: Bearer TOKEN`")
    return Tokens(path)


def _token_file(args: argparse.Namespace, name: str) -> Path:
    return Path(args.token_file or service_folder(name) / "token").absolute()


def _proxy(args: argparse.Namespace, name: str, port: int, tokens: Tokens | None) -> Proxy | None:
    if args.haproxy:
        return HAProxy(args.haproxy, name, port)
    if args.nginx:
        return Nginx(args.nginx / f"{name}.conf", name, port, tokens, shlex.split(args.reload))
    return None


def _config(args: argparse.Namespace, name: str, port: int) -> str:
    if args.print_config == "nginx":
        if args.tcp:
            raise InputError(
                "nginx is for HTTP here: use HAProxy, or the gateway itself, with --tcp"
            )
        return nginx_config(name, port, (args.nginx or Path("/etc/nginx/mirage")) / f"{name}.conf")
    token_file = None if args.no_token else _token_file(args, name)
    return haproxy_config(name, port, token_file, not args.tcp)


def _seconds(option: str, text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError(f"--{option}: {error}") from error


def _say(words: str) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {words}", flush=True)
