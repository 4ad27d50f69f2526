"""A package `tiny` as a wheel, so that installations need no index."""

import zipfile
from pathlib import Path


def write(folder: Path, version: str = "1.0") -> None:
    """Write the wheel into the folder. The module `tiny` has the version, which its command prints."""
    folder.mkdir(exist_ok=True)
    info = f"tiny-{version}.dist-info"
    with zipfile.ZipFile(folder / f"tiny-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", f"version = {version!r}\n\ndef main():\n    print(version)\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/entry_points.txt", "[console_scripts]\ntiny = tiny:main\n")
        wheel.writestr(f"{info}/RECORD", "")
