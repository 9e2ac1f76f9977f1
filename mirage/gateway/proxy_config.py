"""The configuration that a proxy needs for a service: `mirage gateway --print-config`."""

from __future__ import annotations

from pathlib import Path

from mirage.gateway.haproxy import SLOT
from mirage.gateway.nginx import variable

SLOTS = 16
_REPEAT = (
    "    retry-on conn-failure empty-response",
    "    http-request disable-l7-retry unless METH_GET or { method HEAD OPTIONS }",
)


def haproxy_config(name: str, port: int, token_file: Path | None, is_http: bool) -> str:
    """A whole haproxy.cfg, for HAProxy 2.4 or newer. ``port``: of the gateway."""
    lines = [
        f"# For `mirage gateway {name}:{port} --haproxy SOCKET`, which fills the slots of the backend.",
        "global",
        "    stats socket SOCKET mode 600 level admin",
        "    log 127.0.0.1:PORT format raw local0 info".replace("PORT", str(port)),
        "defaults",
        f"    mode {'http' if is_http else 'tcp'}",
        "    log global",
        "    timeout connect 2s",
        "    timeout client 1h",
        "    timeout server 1h",
        "    timeout tunnel 24h",
        *(["    timeout http-keep-alive 300s"] if is_http else []),
        f"frontend {name}",
        "    bind :8443 ssl crt CERTIFICATE.pem alpn h2,http/1.1"
        if is_http
        else "    bind :8443  # `ssl crt CERTIFICATE.pem` where clients speak TLS from the start",
        '    log-format "mirage-ms %ST %Tw %Tc %Tr"'
        if is_http
        else '    log-format "mirage-ms 200 %Tw %Tc"',
        *(_token_rules(token_file) if token_file and is_http else []),
        f"    default_backend {name}",
        f"backend {name}",
        "    balance leastconn",
        "    option redispatch 1",
        "    retries 3",
        *(_REPEAT if is_http else []),
        "    default-server check inter 1s fall 2 rise 1 on-marked-down shutdown-sessions",
        f"    server-template {SLOT} 1-{SLOTS} 127.0.0.1:1 disabled",
        f"    server waits 127.0.0.1:{port} backup no-check  # requests wait there for a replica",
    ]
    return "\n".join(lines) + "\n"


def _token_rules(token_file: Path) -> tuple[str, ...]:
    return (
        f"    acl right_token req.hdr(Authorization),word(2,' ') -m str -f {token_file}",
        "    acl is_bearer req.hdr(Authorization),word(1,' ') -i bearer",
        "    http-request return status 401 content-type text/plain"
        ' string "give a token of this service" hdr WWW-Authenticate Bearer'
        " unless is_bearer right_token",
    )


def nginx_config(name: str, port: int, file: Path) -> str:
    """What belongs into nginx's block `http`. ``file``: that `mirage gateway` writes."""
    return f"""# For `mirage gateway {name}:{port} --nginx {file.parent}`, which writes the file of `include`.
log_format mirage '$status $upstream_connect_time $upstream_header_time';
include {file};
server {{
    listen 8443 ssl http2;
    ssl_certificate CERTIFICATE.pem;
    ssl_certificate_key KEY.pem;
    access_log syslog:server=127.0.0.1:{port},tag=mirage,nohostname mirage;
    location / {{
        if ($mirage_{variable(name)} = 0) {{ return 401; }}
        proxy_pass http://{name};
        proxy_http_version 1.1;
        proxy_set_header Host $http_host;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection $mirage_connection;
        proxy_buffering off;
        proxy_request_buffering off;
        proxy_connect_timeout 2s;
        proxy_read_timeout 1h;
        proxy_send_timeout 1h;
        client_max_body_size 0;
    }}
}}
map $http_upgrade $mirage_connection {{ default upgrade; '' close; }}
"""
