"""The files that pages load. All of them are part of the service."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from training_service.web.answers import PageNotFound

_FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOREVER: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class File:
    """A file, and its compressed content."""

    content: bytes
    packed: bytes
    kind: str
    digest: str


@cache
def files() -> dict[str, File]:
    """Return all files by their names in URLs."""
    return {
        path.relative_to(_FOLDER).as_posix(): _read(path)
        for path in sorted(_FOLDER.rglob("*"))
        if path.suffix in _TYPES
    }


def url_of(name: str) -> str:
    """Return the URL of a file. It changes with the content, so browsers may keep the file for ever."""
    return f"/static/{name}?{files()[name].digest}"


async def serve(request: Request) -> Response:
    """Answer with the file that the path names. Requests for files need no authentication."""
    file = files().get(request.path_params["name"])
    if file is None:
        raise PageNotFound("there is no such file")
    headers = {"cache-control": _FOREVER, "content-type": file.kind, "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, headers={**headers, "content-encoding": "gzip"})
    return Response(file.content, headers=headers)


def _read(path: Path) -> File:
    content = path.read_bytes()
    packed = gzip.compress(content, mtime=0)
    return File(content, packed, _TYPES[path.suffix], hashlib.sha256(content).hexdigest()[:16])
