"""`headgate connectors`: the active topics of a connector (KIP-558), from a Connect worker or from `headgate web`.

`topics` and `reset` use Connect's own REST resources, which both have; `compare` needs `headgate web`. A token is
never an argument, because all users of the machine can see the command line. Exit codes: 0 success and no difference,
1 failure or a difference, 2 usage.
"""

import argparse
import http.client
import json
import os
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from headgate.base.errors import ClusterError, HeadgateError, UsageError
from headgate.cli.escaping import escaped
from headgate.config.addresses import is_loopback
from headgate.config.files import read_secret

_TIMEOUT_S: Final = 30.0
_LARGEST: Final = 64 * 1024 * 1024
_VARIABLE: Final = "HEADGATE_TOKEN"


def define_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        required=True,
        help="URL of a Connect worker or of headgate web; append /connect/CLUSTER for one of several clusters",
    )
    parser.add_argument(
        "action",
        choices=["topics", "reset", "compare"],
        metavar="topics|reset|compare",
        help="list the active topics; reset them; compare them with the topics seen on the wire (headgate web only)",
    )
    parser.add_argument("name", metavar="NAME", help="name of the connector")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help=f"file with a bearer token (default: ${_VARIABLE})"
    )
    parser.add_argument(
        "--tls-ca", type=Path, metavar="FILE", help="trusted certificate authorities (default: those of the system)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    server = _server(args.url, _token(args.token_file, os.environ), args.tls_ca)
    path = f"/connectors/{quote(args.name, safe='')}/topics"
    match args.action:
        case "topics":
            topics = _topics_in(server.ask("GET", path), args.name)
            _print(args, {args.name: {"topics": topics}}, topics)
            return 0
        case "reset":
            server.ask("PUT", f"{path}/reset")
            _print(args, {"connector": args.name, "reset": True}, [f"The active topics of {args.name} were reset."])
            return 0
        case _:
            return _compare(args, server)


def _compare(args: argparse.Namespace, server: "_RestServer") -> int:
    """Exit code 0 if Connect and the wire agree."""
    root, cluster = server.root()
    query = {"name": args.name} | ({"cluster": cluster} if cluster is not None else {})
    answer = root.ask("GET", f"/api/v1/connectors?{urlencode(query)}")
    try:
        row = answer["connectors"][0]  # without a cluster, that of the first one
        connect, wire, problems = row["connect"], row["wire"], answer["problems"]
    except (LookupError, TypeError):
        raise HeadgateError(f"invalid response: {root.url} is not the URL of headgate web") from None
    if connect is None or wire is None:
        missing = "the active topics of Connect" if connect is None else "the topics seen on the wire"
        why = "; ".join(f"{section}: {text}" for section, text in problems.items()) or "[activity] is off"
        raise HeadgateError(escaped(f"{missing} are not known: {why}"))
    only_connect, only_wire = sorted(set(connect) - set(wire)), sorted(set(wire) - set(connect))
    document = {
        "connector": args.name,
        "connect": sorted(connect),
        "wire": sorted(wire),
        "only_connect": only_connect,
        "only_wire": only_wire,
    }
    lines = [f"both          {topic}" for topic in sorted(set(connect) & set(wire))]
    lines += [f"only Connect  {topic}" for topic in only_connect] + [f"only wire     {topic}" for topic in only_wire]
    _print(args, document, lines)
    return 1 if only_connect or only_wire else 0


def _topics_in(answer: Any, name: str) -> list[str]:
    try:
        topics = answer[name]["topics"]
    except (LookupError, TypeError):
        topics = None
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise HeadgateError("invalid response: --url must be the URL of a Connect worker or of headgate web")
    return sorted(topics)


def _print(args: argparse.Namespace, document: Mapping[str, Any], lines: list[str]) -> None:
    if args.json:
        print(json.dumps(document))
    else:
        for line in lines:  # the name of a connector may contain control characters
            print(escaped(line))


def _token(file: Path | None, environment: Mapping[str, str]) -> str | None:
    if file is None:
        token = environment.get(_VARIABLE, "")
    else:
        try:
            token = read_secret(file).get_secret_value()
        except UsageError as failure:
            raise UsageError(f"--token-file: {failure}") from None
    if not token.isascii() or not token.isprintable():
        raise UsageError("invalid token: it may contain only letters, digits, _ and -")
    return token or None


def _server(url: str, token: str | None, ca: Path | None) -> "_RestServer":
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError("--url is not valid: specify http://HOST:PORT") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise UsageError("--url must be http://HOST:PORT or https://HOST:PORT, with a path or without")
    context = None
    if parts.scheme == "https":
        try:
            context = ssl.create_default_context(cafile=ca)
        except OSError as failure:
            raise UsageError(f"--tls-ca: {ca} cannot be used: {failure.strerror or failure}") from None
    elif token is not None and not is_loopback(parts.hostname):
        print("headgate: warning: the token is sent without encryption, use https", file=sys.stderr)
    return _RestServer(parts=parts, port=port, token=token, tls=context)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RestServer:
    """Opens a connection for each request; it follows no redirects and uses no proxy."""

    parts: SplitResult
    port: int | None
    token: str | None
    tls: ssl.SSLContext | None

    @property
    def url(self) -> str:
        return escaped(self.parts.geturl())

    def root(self) -> "tuple[_RestServer, str | None]":
        """The root of headgate web, and the cluster if the URL names one."""
        before, found, cluster = self.parts.path.rstrip("/").rpartition("/connect/")
        if not found or "/" in cluster:
            return self, None
        return _RestServer(
            parts=self.parts._replace(path=before), port=self.port, token=self.token, tls=self.tls
        ), cluster

    def ask(self, method: str, path: str) -> Any:
        """The JSON of a successful response; `HeadgateError` with the message of any other."""
        status, content = self._call(method, self.parts.path.rstrip("/") + path)
        try:
            answer = json.loads(content) if content else None
        except (ValueError, RecursionError):
            answer = content
        if 200 <= status < 300:
            return answer
        message = answer.get("message") if isinstance(answer, dict) else None
        raise HeadgateError(escaped(f"{self.url} refused: {message or 'no message'} ({status})"))

    def _call(self, method: str, path: str) -> tuple[int, bytes]:
        host = self.parts.hostname or ""
        if self.tls is not None:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, self.port, timeout=_TIMEOUT_S, context=self.tls
            )
        else:
            connection = http.client.HTTPConnection(host, self.port, timeout=_TIMEOUT_S)
        headers = {"Accept": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            content = response.read(_LARGEST + 1)
        except (OSError, http.client.HTTPException) as failure:
            raise ClusterError(escaped(f"{self.url} does not answer: {failure or type(failure).__name__}")) from None
        finally:
            connection.close()
        if len(content) > _LARGEST:
            raise HeadgateError(f"the response of {self.url} is larger than {_LARGEST} bytes")
        return response.status, content
