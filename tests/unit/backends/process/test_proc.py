import os
import subprocess
import sys

from job_tracker.backends.process.proc import stat_of


def test_a_zombie_counts_as_dead_unless_other_threads_of_it_run() -> None:
    program = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(1e6,)).start(); "
    program += "print(flush=True); ctypes.CDLL(None).pthread_exit(None)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            while (stat := stat_of(process.pid)) is not None and stat.state != b"Z":
                os.sched_yield()
            assert stat is not None
            assert not stat.is_dead
        finally:
            process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        ended = stat_of(process.pid)
        assert ended is not None
        assert ended.is_dead
    assert stat_of(process.pid) is None
