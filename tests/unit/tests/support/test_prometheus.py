"""The tests' Prometheus is whole whenever it is found."""

import os
import subprocess
import sys
from pathlib import Path

DOWNLOAD = "#!/bin/sh\ntouch prometheus_2.deb\n"
UNPACK = """#!/bin/sh
mkdir -p "$3/usr/bin"
printf '#!/bin/sh\\n' >"$3/usr/bin/prometheus"
until [ "$(wc -l <"$STARTED")" -eq 3 ]; do sleep 0.05; done
printf 'echo whole\\n' >>"$3/usr/bin/prometheus"
chmod +x "$3/usr/bin/prometheus"
echo unpacked >>"$LOG"
"""
RUN = """
import os, subprocess
from tests.support.prometheus import program
with open(os.environ["STARTED"], "a") as started:
    started.write("one\\n")
subprocess.run([program("prometheus")])
"""


def test_processes_that_need_the_program_at_once_unpack_it_once_and_find_it_whole(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in {"apt-get": DOWNLOAD, "dpkg-deb": UNPACK}.items():
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{programs}:/bin",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "LOG": str(tmp_path / "log"),
        "STARTED": str(tmp_path / "started"),
    }
    command = [sys.executable, "-c", RUN]
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert [process.communicate()[0] for process in started] == ["whole\n"] * 3
    assert (tmp_path / "log").read_text() == "unpacked\n"
