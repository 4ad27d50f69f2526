"""The last collective operations of this process, from the flight recorder of PyTorch.

PyTorch numbers the operations of each process group, with NCCL and with gloo. It keeps the last 2,000 of them
(TORCH_FR_BUFFER_SIZE), which costs about 3 µs per operation. They are read only when the service asks for the
stacks of this process.
"""

import json
import sys
from dataclasses import dataclass
from typing import Any

MOST_GROUPS = 16
_SHOWN, _LONGEST_NAME = 8, 64
_DEFAULT = "default_pg"  # several groups may share any other description
_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")  # for gloo and others, and for NCCL


@dataclass(frozen=True)
class Collective:
    """A collective operation that this process has begun in a process group."""

    group: str
    number: int
    """The number of the operation in its group, from 1 on."""
    operation: str
    """For example `all_reduce`."""
    sizes: str
    """The sizes of the sent tensors, such as `[[1024, 8]]`."""
    done: bool


def last() -> list[Collective]:
    """Return the last operation in each of up to MOST_GROUPS process groups, the latest first.

    The list is empty without the recorder.
    """
    newest: dict[str, Collective] = {}
    for each in reversed(_recorded()):
        newest.setdefault(each.group, each)
    return list(newest.values())[:MOST_GROUPS]


def lines() -> str:
    """Return the last few operations of all groups together as lines for a log, the latest last."""
    return "".join(
        f"  {each.group} #{each.number} {each.operation} {each.sizes}{'' if each.done else ', not done'}\n"
        for each in _recorded()[-_SHOWN:]
    )


def _recorded() -> list[Collective]:
    distributed = getattr(getattr(sys.modules.get("torch"), "_C", None), "_distributed_c10d", None)
    found: list[tuple[int, Collective]] = []
    for name in _DUMPS:
        dump = getattr(distributed, name, None)
        try:
            entries = json.loads(dump(includeCollectives=True, onlyActive=False))["entries"] if dump else ()
            found += [
                (int(each["time_created_ns"]), _collective(each)) for each in entries if not each["is_p2p"]
            ]
        except Exception:  # noqa: S112  # the dump's format may differ in other versions
            continue
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


def _collective(entry: dict[str, Any]) -> Collective:
    name, description = (str(part) for part in entry["process_group"])
    return Collective(
        group=(description if description == _DEFAULT else f"{description} {name}")[:_LONGEST_NAME],
        number=int(entry["collective_seq_id"]),
        operation=str(entry["profiling_name"]).rpartition(":")[2][:_LONGEST_NAME],
        sizes=str(entry["input_sizes"])[:_LONGEST_NAME],
        done=bool(entry["retired"]) or entry["state"] == "completed",
    )
