"""`headgate connectors`: active topics of a connector (KIP-558), asked of a Connect worker or of Headgate's web.

`topics` and `reset` speak Connect's own REST, so both understand them; `compare` needs Headgate, which knows what
Connect says and what was seen on the wire. One rule: a token never stands on the command line, where every user of the
machine could read it. Exit codes: 0 done and no difference, 1 failed or a difference, 2 usage.
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
from headgate.cli.logs import escaped
from headgate.config.addresses import is_loopback
from headgate.config.files import read_secret

_TIMEOUT_S: Final = 30.0
_LARGEST: Final = 64 * 1024 * 1024
_VARIABLE: Final = "HEADGATE_TOKEN"


# argparse gives the type of add_subparsers() no public name.
def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("connectors", help="the topics that a connector uses: show, reset, compare")
    parser.add_argument(
        "--url", required=True, help="of a Connect worker or of Headgate's web; .../connect/CLUSTER for one of several"
    )
    parser.add_argument(
        "action",
        choices=["topics", "reset", "compare"],
        metavar="topics|reset|compare",
        help="list what it uses; begin that list afresh; compare it with what was seen on the wire (Headgate only)",
    )
    parser.add_argument("name", metavar="NAME", help="the connector")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=f"a bearer token (default: ${_VARIABLE})")
    parser.add_argument("--tls-ca", type=Path, metavar="FILE", help="authorities to trust (default: this machine's)")
    parser.add_argument("--json", action="store_true", help="one object on standard output")
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


def _compare(args: argparse.Namespace, server: "_Server") -> int:
    """0 when both say the same."""
    root, cluster = server.root()
    query = {"name": args.name} | ({"cluster": cluster} if cluster is not None else {})
    answer = root.ask("GET", f"/api/v1/connectors?{urlencode(query)}")
    try:
        row = answer["connectors"][0]  # without a cluster the first is the one at the plain path
        connect, wire, problems = row["connect"], row["wire"], answer["problems"]
    except (LookupError, TypeError):
        raise HeadgateError(f"{root.url} did not answer as Headgate's web does") from None
    if connect is None or wire is None:
        missing = "what Connect says" if connect is None else "what was seen on the wire"
        why = "; ".join(f"{what}: {text}" for what, text in problems.items()) or "it is not watched"
        raise HeadgateError(escaped(f"{missing} is not known: {why}"))
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
        raise HeadgateError("the answer is not Connect's: is this the URL of a Connect worker or of Headgate's web?")
    return sorted(topics)


def _print(args: argparse.Namespace, document: Mapping[str, Any], lines: list[str]) -> None:
    if args.json:
        print(json.dumps(document))
    else:
        for line in lines:  # topics have harmless names, connectors need not
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
        raise UsageError("the token is none: it has only letters, digits, _ and -")
    return token or None


def _server(url: str, token: str | None, ca: Path | None) -> "_Server":
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError("--url is not a URL: write http://HOST:PORT") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise UsageError("--url must be http://HOST:PORT or https://HOST:PORT, with a path or without")
    context = None
    if parts.scheme == "https":
        try:
            context = ssl.create_default_context(cafile=ca)
        except OSError as failure:
            raise UsageError(f"--tls-ca: {ca} cannot be used: {failure.strerror or failure}") from None
    elif token is not None and not is_loopback(parts.hostname):
        print("headgate: the token is sent as it is: use https", file=sys.stderr)
    return _Server(parts=parts, port=port, token=token, tls=context)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """One call a connection; no redirects, no proxies."""

    parts: SplitResult
    port: int | None
    token: str | None
    tls: ssl.SSLContext | None

    @property
    def url(self) -> str:
        return escaped(self.parts.geturl())

    def root(self) -> "tuple[_Server, str | None]":
        """Headgate's root, and the cluster when the URL is that of one."""
        before, found, cluster = self.parts.path.rstrip("/").rpartition("/connect/")
        if not found or "/" in cluster:
            return self, None
        return _Server(parts=self.parts._replace(path=before), port=self.port, token=self.token, tls=self.tls), cluster

    def ask(self, method: str, path: str) -> Any:
        """The JSON of an answer that says yes; `HeadgateError` with the server's words for one that says no."""
        status, content = self._call(method, self.parts.path.rstrip("/") + path)
        try:
            answer = json.loads(content) if content else None
        except (ValueError, RecursionError):
            answer = content
        if 200 <= status < 300:
            return answer
        message = answer.get("message") if isinstance(answer, dict) else None
        raise HeadgateError(escaped(f"{self.url} refused: {message or 'no text'} ({status})"))

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
            answer = connection.getresponse()
            content = answer.read(_LARGEST + 1)
        except (OSError, http.client.HTTPException) as failure:
            raise ClusterError(escaped(f"{self.url} does not answer: {failure or type(failure).__name__}")) from None
        finally:
            connection.close()
        if len(content) > _LARGEST:
            raise HeadgateError(f"the answer of {self.url} has more than {_LARGEST} bytes")
        return answer.status, content
