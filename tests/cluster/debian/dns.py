"""The cluster's DNS server: host names of Services and pods, from the API's Services and Endpoints.

Answers A (and PTR) for
    SERVICE.NAMESPACE.svc.DOMAIN            ClusterIP; of a headless Service, its endpoints
    HOSTNAME.SERVICE.NAMESPACE.svc.DOMAIN   the endpoint with that host name (or 10-1-2-3)
    10-1-2-3.NAMESPACE.pod.DOMAIN           10.1.2.3
Other types of these names get NODATA, and all other names NXDOMAIN, because there is no server to forward to.
If the API is unreachable, the last known state is used.
"""

import argparse
import http.client
import json
import re
import socket
import socketserver
import ssl
import struct
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

A, CNAME, PTR, ANY = 1, 5, 12, 255
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP = 0, 1, 2, 3, 4
DASHED = re.compile(r"\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}$")

Key = tuple[str, str]
"""Namespace and name."""
Record = tuple[int, bytes]
T = TypeVar("T")


class Service(NamedTuple):
    cluster_ip: str | None
    publish_not_ready: bool
    alias: str | None

    @classmethod
    def of(cls, found: dict[str, Any]) -> "Service":
        spec = found["spec"]
        return cls(
            spec.get("clusterIP"), bool(spec.get("publishNotReadyAddresses")), spec.get("externalName")
        )


class Endpoint(NamedTuple):
    ip: str
    host: str
    ready: bool


def endpoints_of(found: dict[str, Any]) -> list[Endpoint]:
    """Return the endpoints in an object of the API, each address once."""
    by_ip = {}
    for subset in found.get("subsets") or []:
        for part, ready in (("notReadyAddresses", False), ("addresses", True)):
            for address in subset.get(part) or []:
                ip = address["ip"]
                by_ip[ip] = Endpoint(ip, address.get("hostname") or ip.replace(".", "-"), ready)
    return list(by_ip.values())


class Store(Generic[T]):
    """One resource in all namespaces, kept up to date by list and watch."""

    def __init__(
        self, server: str, tls: ssl.SSLContext, resource: str, pick: Callable[[dict[str, Any]], T]
    ) -> None:
        self.items: dict[Key, T] = {}
        self.ready = threading.Event()
        self._url, self._tls, self._resource, self._pick = urllib.parse.urlsplit(server), tls, resource, pick
        threading.Thread(target=self._run, daemon=True).start()

    def _get(self, timeout: float, **query: object) -> http.client.HTTPResponse:
        assert self._url.hostname
        connection = http.client.HTTPSConnection(
            self._url.hostname, self._url.port, timeout=timeout, context=self._tls
        )
        connection.request("GET", f"/api/v1/{self._resource}?{urllib.parse.urlencode(query)}")
        response = connection.getresponse()
        if response.status != 200:
            raise OSError(f"{self._resource}: HTTP {response.status}")
        return response

    def _run(self) -> None:
        logged = ""
        while True:
            try:
                self._list_and_watch()
                logged = ""
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                if repr(error) != logged:  # once for each kind of error, not for each try
                    logged = repr(error)
                    print(self._resource, logged, file=sys.stderr, flush=True)
                time.sleep(0.3)

    def _list_and_watch(self) -> None:
        listing = json.load(self._get(30))
        self.items = {_key(found): self._pick(found) for found in listing["items"]}
        self.ready.set()
        version = listing["metadata"]["resourceVersion"]
        while True:
            query = {"watch": 1, "timeoutSeconds": 300, "allowWatchBookmarks": "true"}
            for line in self._get(400, resourceVersion=version, **query):
                event = json.loads(line)
                found = event["object"]
                if event["type"] == "ERROR":  # the version is too old: list again
                    return
                version = found["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    self.items.pop(_key(found), None)
                elif event["type"] != "BOOKMARK":
                    self.items[_key(found)] = self._pick(found)


def _key(found: dict[str, Any]) -> Key:
    return found["metadata"]["namespace"], found["metadata"]["name"]


class Zone:
    """The addresses of names."""

    def __init__(self, domain: str, services: Store[Service], endpoints: Store[list[Endpoint]]) -> None:
        self.domain = domain.lower().strip(".").split(".")
        self._services, self._endpoints = services, endpoints

    def ready(self) -> bool:
        return self._services.ready.is_set() and self._endpoints.ready.is_set()

    def addresses(self, labels: list[str]) -> tuple[list[str] | None, str | None]:
        """Return the IPv4 addresses of a name under the domain (None if unknown), and its alias, if any."""
        if len(labels) == 3 and labels[2] == "pod" and DASHED.match(labels[0]):
            return [labels[0].replace("-", ".")], None
        if len(labels) not in (3, 4) or labels[-1] != "svc":
            return None, None
        key = (labels[-2], labels[-3])
        service = self._services.items.get(key)
        if service is None:
            return None, None
        headless = service.cluster_ip == "None"
        if len(labels) == 4:
            ips = [e.ip for e in self._published(key, service) if headless and e.host == labels[0]]
            return ips or None, None
        if headless:
            return [endpoint.ip for endpoint in self._published(key, service)], None
        return ([service.cluster_ip], None) if service.cluster_ip else ([], service.alias)

    def name_of(self, ip: str) -> str | None:
        for (namespace, name), service in list(self._services.items.items()):
            if service.cluster_ip == ip:
                return ".".join([name, namespace, "svc", *self.domain])
            if service.cluster_ip == "None":
                for endpoint in self._published((namespace, name), service):
                    if endpoint.ip == ip:
                        return ".".join([endpoint.host, name, namespace, "svc", *self.domain])
        return None

    def _published(self, key: Key, service: Service) -> list[Endpoint]:
        found = self._endpoints.items.get(key, [])
        return [endpoint for endpoint in found if endpoint.ready or service.publish_not_ready]


class Responder:
    """Answers queries."""

    def __init__(self, zone: Zone, ttl: int) -> None:
        self._zone, self._ttl = zone, ttl

    def answer(self, query: bytes, limit: int) -> bytes | None:
        """Return the reply to a DNS message; None for no reply."""
        if len(query) < 12:
            return None
        ident, flags, questions = struct.unpack("!HHH", query[:6])
        if flags & 0x8000:
            return None
        if flags & 0x7800:
            return self._reply(ident, flags, b"", NOTIMP, [])
        try:
            labels, position = _labels(query)
            kind, _ = struct.unpack("!HH", query[position : position + 4])
            if questions != 1:
                raise ValueError
        except (IndexError, ValueError, struct.error):
            return self._reply(ident, flags, b"", FORMERR, [])
        question = query[12 : position + 4]
        if not self._zone.ready():
            return self._reply(ident, flags, question, SERVFAIL, [])
        code, records = self._look_up(labels, kind)
        reply = self._reply(ident, flags, question, code, records)
        if len(reply) > limit:  # the client asks again over TCP
            reply = self._reply(ident, flags | 0x0200, question, code, [])
        return reply

    def _look_up(self, labels: list[str], kind: int) -> tuple[int, list[Record]]:
        domain = self._zone.domain
        if labels[-len(domain) :] == domain:
            ips, alias = self._zone.addresses(labels[: -len(domain)])
            if ips is None:
                return NXDOMAIN, []
            if alias:
                return NOERROR, [(CNAME, _name(alias))]
            return NOERROR, [(A, socket.inet_aton(ip)) for ip in ips] if kind in (A, ANY) else []
        if labels[-2:] == ["in-addr", "arpa"] and len(labels) == 6:
            name = self._zone.name_of(".".join(reversed(labels[:4])))
            if name:
                return NOERROR, [(PTR, _name(name))] if kind in (PTR, ANY) else []
        return NXDOMAIN, []

    def _reply(self, ident: int, flags: int, question: bytes, code: int, records: Iterable[Record]) -> bytes:
        # response, authoritative, recursion available; opcode, TC and RD as in the query
        packed = [
            b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, self._ttl, len(data)) + data for kind, data in records
        ]  # c00c: the name in the question
        flags = 0x8480 | flags & 0x7B00 | code
        head = struct.pack("!HHHHHH", ident, flags, bool(question), len(packed), 0, 0)
        return head + question + b"".join(packed)


def _labels(query: bytes) -> tuple[list[str], int]:
    """Return the labels of the requested name, and its end."""
    labels, position = [], 12
    while size := query[position]:
        if size > 63:
            raise ValueError
        labels.append(query[position + 1 : position + 1 + size].decode("ascii").lower())
        position += 1 + size
    return labels, position + 1


def _name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.strip(".").split(".")) + b"\0"


def serve(address: str, port: int, responder: Responder) -> None:
    class Udp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            data, sock = self.request
            reply = responder.answer(data, 512)
            if reply:
                sock.sendto(reply, self.client_address)

    class Tcp(socketserver.StreamRequestHandler):
        timeout = 10

        def handle(self) -> None:
            try:
                while len(head := self.rfile.read(2)) == 2:
                    reply = responder.answer(self.rfile.read(struct.unpack("!H", head)[0]), 65535)
                    if not reply:
                        return
                    self.wfile.write(struct.pack("!H", len(reply)) + reply)
            except OSError:
                pass

    class TcpServer(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True
        request_queue_size = 128

    for server in (socketserver.UDPServer((address, port), Udp), TcpServer((address, port), Tcp)):
        threading.Thread(target=server.serve_forever, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--listen", action="append", required=True)
    parser.add_argument("--port", type=int, default=53)
    parser.add_argument("--domain", default="cluster.local")
    parser.add_argument("--ttl", type=int, default=2)
    parser.add_argument("--ready-file", type=Path, required=True)
    args = parser.parse_args()
    tls = ssl.create_default_context(cafile=args.ca)
    tls.load_cert_chain(args.cert, args.key)
    services = Store(args.server, tls, "services", Service.of)
    endpoints = Store(args.server, tls, "endpoints", endpoints_of)
    responder = Responder(Zone(args.domain, services, endpoints), args.ttl)
    for address in args.listen:
        serve(address, args.port, responder)
    services.ready.wait()
    endpoints.ready.wait()
    args.ready_file.touch()
    threading.Event().wait()


main()
