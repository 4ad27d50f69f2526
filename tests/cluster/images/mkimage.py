"""Makes an image archive, as `docker save` does, without a Docker engine: one layer for each folder."""

import argparse
import hashlib
import io
import json
import tarfile
import tempfile
import time
from pathlib import Path

SEARCH_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("name")
    parser.add_argument("layers", nargs="+", type=Path)
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--entrypoint", action="append", default=[])
    parser.add_argument("--cmd", action="append", default=[])
    parser.add_argument("--user", default="")
    args = parser.parse_args()
    settings = {
        "Env": [SEARCH_PATH, *args.env],
        "Entrypoint": args.entrypoint,
        "Cmd": args.cmd,
        "User": args.user,
    }
    with tempfile.TemporaryDirectory(dir=args.out.resolve().parent) as folder:
        layers = [pack(source, Path(folder) / str(i)) for i, source in enumerate(args.layers)]
        image = Path(folder) / "image"
        write(image, args.name, settings, layers)
        image.replace(args.out)


def pack(source: Path, layer: Path) -> tuple[str, Path]:
    """Pack a folder into a layer. Return its digest and its path."""
    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as archive:
        for entry in sorted(source.iterdir()):
            archive.add(entry, arcname=entry.name, filter=nameless)
    with layer.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest(), layer


def nameless(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out this machine's names of users and groups: in the image, only the numbers count."""
    member.uname = member.gname = ""
    return member


def write(image: Path, name: str, settings: dict[str, object], layers: list[tuple[str, Path]]) -> None:
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest, _ in layers]},
            "history": [{} for _ in layers],
        }
    ).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    members = [f"{digest}/layer.tar" for digest, _ in layers]
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": members}]).encode()
    with tarfile.open(image, "w", format=tarfile.PAX_FORMAT) as archive:
        for member, data in ((config_name, config), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for member, (_, layer) in zip(members, layers, strict=True):
            archive.add(layer, arcname=member, filter=nameless)


if __name__ == "__main__":
    main()
