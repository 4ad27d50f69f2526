"""An API server in memory: pods and Services can be created, read, listed, watched, changed and deleted.

It keeps the promises that the service relies on: names and uids are unique, versions only grow, and a started
pod exists until its node has ended it. There are no nodes or controllers: the test does their work.
"""

import asyncio
import copy
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from job_tracker.backends.kubernetes.options import CONTAINER

Object = dict[str, Any]
C = TypeVar("C", bound="FakeCluster")


class FakeCluster:
    """One namespace. `asked` counts the requests by kind: "POST pods", "LIST pods", "GET log" and so on.

    `seconds` is the duration of each request except watches.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.asked: Counter[str] = Counter()
        self.seconds = 0.0
        self.ends_pods_at_once = True
        """Whether deleted pods end at once, as on a fast node."""
        self.forbidden: set[str] = set()
        """Kinds of requests that are answered with 403, as in `asked`."""
        self.webhook: Callable[[Object], str] = lambda _: ""
        """Called with each pod that is created or changed. It may change new pods. It returns why it refuses
        the pod, or an empty string.
        """
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change of an object, like a controller."""
        self.last_words: dict[str, str] = {}
        """The output of a pod after SIGTERM, by its name. Only followers of its log see it."""
        self.gives_logs = asyncio.Event()
        """Requests for logs are answered once this event is set."""
        self.gives_logs.set()
        self._objects: dict[tuple[str, str], Object] = {}
        self._deleted: list[tuple[str, Object]] = []
        self._version = 100
        self._watches: set[tuple[str, asyncio.Queue[Object | None]]] = set()

    # --- the interface for tests --------------------------------------------------------------------

    def names(self, kind: str = "pods") -> set[str]:
        """Return the names of all existing objects of this kind."""
        return {name for of, name in self._objects if of == kind}

    def get(self, name: str, kind: str = "pods") -> Object:
        """Return a copy of the object."""
        return copy.deepcopy(self._objects[kind, name])

    def run(self, *names: str) -> None:
        """Start the containers of these pods."""
        for name in names:
            self._set_state(name, "Running", {"running": {"startedAt": _now()}})

    def end(self, name: str, code: int = 0, at: datetime | None = None) -> None:
        """End the container of the pod as if by itself, with this exit code. Without `at`, it ends now."""
        phase = "Failed" if code else "Succeeded"
        self._set_state(name, phase, {"terminated": {"exitCode": code, "finishedAt": _now(at)}})

    def put(self, kind: str, made: Object) -> None:
        """Create or replace an object, as something other than the service does."""
        name = made["metadata"]["name"]
        known = (kind, name) in self._objects
        uid = self._objects[kind, name]["metadata"]["uid"] if known else str(uuid.uuid4())
        self._objects[kind, name] = copy.deepcopy(made)
        self._objects[kind, name]["metadata"].setdefault("uid", uid)
        self._publish("MODIFIED" if known else "ADDED", kind, self._objects[kind, name])

    def delete(self, *names: str, kind: str = "pods") -> None:
        """Delete objects at once, as something other than the service does. Objects with finalizers are only
        marked as deleted.
        """
        for name in names:
            found = self._objects[kind, name]
            if found["metadata"].get("finalizers"):
                self._mark_finalizing(kind, found)
                continue
            gone = self._objects.pop((kind, name))
            self._publish("DELETED", kind, gone)
            self._deleted.append((kind, copy.deepcopy(gone)))
            self.on_change()

    def change(self, kind: str, name: str, change: Callable[[Object], None]) -> None:
        """Change an object, as a controller does. A deleted object goes away with its last finalizer."""
        found = self._objects[kind, name]
        change(found)
        self._publish("MODIFIED", kind, found)
        metadata = found["metadata"]
        is_last = metadata.get("deletionTimestamp") and not metadata.get("finalizers")
        if is_last and (kind, name) in self._objects:
            self.delete(name, kind=kind)

    def _mark_finalizing(self, kind: str, found: Object) -> None:
        if "deletionTimestamp" in found["metadata"]:
            return
        found["metadata"] |= {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": 0}
        if kind == "pods" and "running" in self._state_of(found["metadata"]["name"]):
            found["metadata"]["deletionGracePeriodSeconds"] = 30
            self.end(found["metadata"]["name"], 143)
        else:
            self._publish("MODIFIED", kind, found)

    def mark_deleted(self, name: str) -> None:
        """Request the deletion of a pod, as another client does.

        The pod stays, as if its node were slow to end it.
        """
        found = self._objects["pods", name]
        found["metadata"] |= {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": 30}
        self._publish("MODIFIED", "pods", found)

    def _set_state(self, name: str, phase: str, state: Object) -> None:
        found = self._objects["pods", name]
        status = {"name": CONTAINER, "state": state, "restartCount": 0, "imageID": ""}
        conditions = found.get("status", {}).get("conditions", [])
        found["status"] = {"phase": phase, "containerStatuses": [status], "conditions": conditions}
        self._publish("MODIFIED", "pods", found)

    def _publish(self, event: str, kind: str, changed: Object) -> None:
        self._version += 1
        changed["metadata"]["resourceVersion"] = str(self._version)
        for of, queue in self._watches:
            if of == kind:
                queue.put_nowait({"type": event, "object": copy.deepcopy(changed)})
        if event != "DELETED":
            self.on_change()

    # --- the API ------------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        kind = request.match_info["kind"]
        name, below = (request.match_info.get(part, "") for part in ("name", "below"))
        if request.query.get("watch"):
            self.asked[f"WATCH {kind}"] += 1
            if f"WATCH {kind}" in self.forbidden:
                return _status(403, "Forbidden", f"cannot watch resource {kind!r}")
            return await self._watch(request, kind)
        body = await request.json() if request.can_read_body else {}
        if below:
            word = f"GET {below}"
        elif request.method == "GET" and not name:
            word = f"LIST {kind}"
        else:
            word = f"{request.method} {kind}"
        self.asked[word] += 1
        await asyncio.sleep(self.seconds)
        if word in self.forbidden:
            return _status(403, "Forbidden", f"cannot do {word}")
        if below == "log":
            return await self._log(name, follow=request.query.get("follow") == "true")
        match request.method:
            case "POST":
                return self._post(kind, body)
            case "GET" if not name:
                return self._list(kind, request.query.get("labelSelector", ""))
        found = self._objects.get((kind, name))
        if found is None:
            return _status(404, "NotFound", f"{kind} {name!r} not found")
        match request.method:
            case "PATCH":
                if kind == "pods" and (refusal := self.webhook(found)):
                    return _status(500, "InternalError", refusal)
                return self._patch(kind, found, body["metadata"])
            case "DELETE":
                return self._delete(kind, found, body)
        return web.json_response(found)

    async def _log(self, name: str, *, follow: bool) -> web.Response:
        await self.gives_logs.wait()
        lines = ["2026-11-21T12:00:00.000000001Z printed\n"]
        if follow and name in self.last_words:
            while "running" in self._state_of(name):
                await asyncio.sleep(0.01)
            lines.append(f"2026-11-21T12:00:00.000000002Z {self.last_words[name]}\n")
        return web.Response(text="".join(lines))

    def _state_of(self, name: str) -> Object:
        status = self._objects.get(("pods", name), {}).get("status", {})
        return next((dict(each["state"]) for each in status.get("containerStatuses", ())), {})

    def _post(self, kind: str, body: Object) -> web.Response:
        name = body["metadata"]["name"]
        if (kind, name) in self._objects:
            return _status(409, "AlreadyExists", f"{kind} {name!r} already exists")
        made = copy.deepcopy(body)
        made["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now()}
        if kind == "pods":
            made["status"] = {"phase": "Pending"}
            if refusal := self.webhook(made):
                return _status(500, "InternalError", refusal)
        self._objects[kind, name] = made
        self._version += 1
        made["metadata"]["resourceVersion"] = str(self._version)
        answer = web.json_response(made, status=201)  # the state before controllers see it
        self._publish("ADDED", kind, made)
        return answer

    def _list(self, kind: str, selector: str) -> web.Response:
        items = [each for (of, _), each in self._objects.items() if of == kind and _selects(selector, each)]
        return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    def _patch(self, kind: str, found: Object, metadata: Mapping[str, Any]) -> web.Response:
        if metadata["uid"] != found["metadata"]["uid"]:
            return _status(409, "Conflict", "another uid")
        for field in ("labels", "annotations"):
            found["metadata"][field] = {**found["metadata"].get(field, {}), **metadata.get(field, {})}
        if "ownerReferences" in metadata:
            found["metadata"].pop("ownerReferences", None)
            found["metadata"] |= {"ownerReferences": metadata["ownerReferences"] or []}
        self._publish("MODIFIED", kind, found)
        return web.json_response(found)

    def _delete(self, kind: str, found: Object, body: Object) -> web.Response:
        if body.get("preconditions", {}).get("uid") != found["metadata"]["uid"]:
            return _status(409, "Conflict", "another uid")
        if kind == "pods" and body.get("gracePeriodSeconds") != 0:
            self.end_pod(found["metadata"]["name"])
        else:
            self.delete(found["metadata"]["name"], kind=kind)
        return web.json_response(found)

    def end_pod(self, name: str) -> None:
        """Delete a pod with a grace period. If it runs, it stays until its node has ended it, unless
        `ends_pods_at_once`.
        """
        if "running" in self._state_of(name) and not self.ends_pods_at_once:
            self.mark_deleted(name)
        else:
            self.delete(name)

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        queue: asyncio.Queue[Object | None] = asyncio.Queue()
        response = web.StreamResponse()
        await response.prepare(request)
        since = int(request.query["resourceVersion"])
        for (of, _), each in self._objects.items():  # the changes since that version
            if of == kind and int(each["metadata"]["resourceVersion"]) > since:
                queue.put_nowait({"type": "MODIFIED", "object": copy.deepcopy(each)})
        for of, each in self._deleted:
            if of == kind and int(each["metadata"]["resourceVersion"]) > since:
                queue.put_nowait({"type": "DELETED", "object": copy.deepcopy(each)})
        watch = (kind, queue)
        self._watches.add(watch)
        try:
            while (event := await queue.get()) is not None:
                if _selects(request.query.get("labelSelector", ""), event["object"]):
                    await response.write(json.dumps(event).encode() + b"\n")
        except ConnectionResetError:
            pass  # the client has closed the watch
        finally:
            self._watches.discard(watch)
        return response

    def end_watches(self) -> None:
        """End all watches, as a server does when it stops."""
        for _, queue in self._watches:
            queue.put_nowait(None)


@asynccontextmanager
async def fake_cluster(folder: Path) -> AsyncIterator[FakeCluster]:
    """Serve a new cluster on loopback during the block, and write its kubeconfig into the folder."""
    async with served(FakeCluster(folder / "kubeconfig")) as made:
        yield made


@asynccontextmanager
async def served(made: C) -> AsyncIterator[C]:
    """Serve this cluster on loopback during the block, and write its kubeconfig."""
    app = web.Application()
    app.router.add_route(
        "*", "/api/v1/namespaces/{namespace}/{kind:[^/]+}{a:/?}{name:[^/]*}{b:/?}{below:.*}", made.handle
    )
    app.router.add_route("GET", "/api/v1/{kind:nodes|pods}", made.handle)
    of_group = "/apis/{group}/{version}/namespaces/{namespace}/{kind:[^/]+}{a:/?}{name:[^/]*}{b:/?}{below:.*}"
    app.router.add_route("*", of_group, made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": f"http://{host}:{port}"}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    made.kubeconfig.write_text(json.dumps(config))
    try:
        yield made
    finally:
        made.end_watches()
        await runner.cleanup()


def _selects(selector: str, found: Object) -> bool:
    labels = found["metadata"].get("labels", {})
    for term in filter(None, selector.split(",")):
        key, equals, value = term.partition("=")
        if key.startswith("!"):
            if key[1:] in labels:
                return False
        elif key not in labels or (equals and labels[key] != value):
            return False
    return True


def _status(code: int, reason: str, message: str) -> web.Response:
    return web.json_response(
        {"kind": "Status", "code": code, "reason": reason, "message": message}, status=code
    )


def _now(at: datetime | None = None) -> str:
    return (at or datetime.now(UTC)).isoformat(timespec="seconds").replace("+00:00", "Z")
