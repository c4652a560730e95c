"""Scripts of sh for the attempts of a Pod and a native job to reach each other's cores, memory and
devices.

A script prints ESCAPED after success, else the error that stopped the attempt. If the error is not the
expected error, the attempt proves nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from shlex import quote
from typing import Final

ESCAPED: Final = "ESCAPED"
NOT_PERMITTED: Final = "Operation not permitted"
_DENIED: Final = "[Pp]ermission denied"
_INVALID: Final = "Invalid argument"
_READ_ONLY: Final = "Read-only file system"


@dataclass(frozen=True)
class Escape:
    """An attempt to reach resources of the other side. `script` may use $own_cpus, the CPUs of the own
    side, and $cpu, a CPU of the other side. $gpu and $minor are the number and the minor number of a
    device of the other side."""

    name: str
    script: str
    held_by: str
    """Regular expression of the expected refusal, by the kernel or by Slurm."""

    def verdict(self, said: str) -> str:
        """Returns the reason why the attempt did not fail as expected; empty if the attempt failed as
        expected."""
        if ESCAPED in said:
            return f"escaped: {said}"
        return "" if re.search(self.held_by, said) else f"held by something else: {said}"

    def __str__(self) -> str:
        return self.name


def device(numbers: frozenset[int]) -> dict[str, int]:
    """Returns the script variables of the device with the lowest number."""
    return {"gpu": min(numbers), "minor": 16 + min(numbers)}


def all_of(escapes: tuple[Escape, ...], **variables: object) -> str:
    """Returns a single script that makes all attempts one after the other."""
    given = "".join(f"{name}='{value}'\n" for name, value in variables.items())
    tries = "".join(
        f"echo {quote(f'=== {each.name}')}\n(\n{each.script}\n) 2>&1 </dev/null\n" for each in escapes
    )
    return f"{given}export {' '.join(variables)}\n{_FUNCTIONS}\n{tries}echo '=== over'\n"


def answers(said: str) -> dict[str, str]:
    """Returns the output of each attempt by name; empty until the last attempt has ended."""
    parts = re.split(r"^=== (.+)\n", said, flags=re.MULTILINE)[1:]
    found = dict(zip(parts[::2], parts[1::2], strict=True))
    return found if "over" in found else {}


# The functions are in a file, because a child shell inherits no functions and must read the file.
_FUNCTIONS: Final = r"""
cat > "${TMPDIR:-/tmp}/functions" <<'END'
cpus_are_own() {
    now=$(sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status)
    [ "$now" = "$own_cpus" ] && echo "on $now as before" || echo "ESCAPED to $now"
}
opens() { if ( : < "$1" ); then echo "ESCAPED: $1 opened"; fi; }
END
. "${TMPDIR:-/tmp}/functions"
functions="${TMPDIR:-/tmp}/functions"
export functions"""

_TAKES_CORE: Final = "taskset -p -c $cpu $$; cpus_are_own"
_FORKS_AWAY: Final = """done=${TMPDIR:-/tmp}/away
setsid sh -c '. $functions; (taskset -p -c $cpu $$; cpus_are_own) > $0.new 2>&1; mv $0.new $0' $done &
for second in 1 2 3 4 5 6 7 8 9 10; do [ -e $done ] && break; sleep 1; done
cat $done"""
_REACHED: Final = f" && echo {ESCAPED}"
_MADE_YET_NOT_OPENED: Final = f"made\n(.*\n)*.*{NOT_PERMITTED}"

BY_POD: Final = (
    Escape("sched_setaffinity", _TAKES_CORE, _INVALID),
    Escape("sched_setaffinity of a child that forked away", _FORKS_AWAY, _INVALID),
    Escape(
        "cores in its own cgroup's file",
        "echo $cpu > /sys/fs/cgroup/cpuset.cpus; cpus_are_own",
        _READ_ONLY,
    ),
    Escape(
        "memory in its own cgroup's file",
        "echo max > /sys/fs/cgroup/memory.max" + _REACHED,
        _READ_ONLY,
    ),
    Escape("a cgroup of its own", "mkdir /sys/fs/cgroup/own" + _REACHED, _READ_ONLY),
    Escape("its cgroups writable", "mount -o remount,rw /sys/fs/cgroup" + _REACHED, _DENIED),
    Escape(
        "a cgroupfs of its own",
        "mkdir /tmp/cgroups; mount -t cgroup2 none /tmp/cgroups" + _REACHED,
        _DENIED,
    ),
    Escape("the Node's /dev by hostPath", "opens /node-dev/fgpu$gpu", NOT_PERMITTED),
    Escape("mknod", "mknod /tmp/made c 4 $minor && echo made; opens /tmp/made", _MADE_YET_NOT_OPENED),
    Escape(
        "mknod in the Node's /dev",
        "mknod /node-dev/made c 4 $minor && echo made; opens /node-dev/made; rm /node-dev/made",
        _MADE_YET_NOT_OPENED,
    ),
    Escape(
        "a link to the device",
        "ln -s /node-dev/fgpu$gpu /tmp/link; opens /tmp/link",
        NOT_PERMITTED,
    ),
    Escape(
        "a namespace of users",
        "unshare -r sh -c '. $functions; opens /node-dev/fgpu$gpu'",
        NOT_PERMITTED,
    ),
    Escape("its own /proc/1/root", "opens /proc/1/root/node-dev/fgpu$gpu", NOT_PERMITTED),
)
"""Attempts in an unprivileged container, with the default capabilities of containerd."""

_ASK_AGENT: Final = """python3 -c '
import socket
socket.socket(socket.AF_UNIX).connect("/run/slurm-extender/node-agent.sock")
print("ESCAPED")'"""

BY_JOB: Final = (
    Escape("sched_setaffinity", _TAKES_CORE, _INVALID),
    Escape("sched_setaffinity of a child that forked away", _FORKS_AWAY, _INVALID),
    Escape(
        "cores in its own cgroup's file",
        "echo $cpu > /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/cpuset.cpus; cpus_are_own",
        _DENIED,
    ),
    Escape(
        "memory in its job's cgroup's file",
        "job=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup | sed s,/step_.*,,)\n"
        "echo max > $job/memory.max" + _REACHED,
        _DENIED,
    ),
    Escape("cores in the Pod's cgroup's file", "echo 3 > $pod/cpuset.cpus" + _REACHED, _DENIED),
    Escape("into no cgroup", "echo $$ > /sys/fs/cgroup/cgroup.procs" + _REACHED, _DENIED),
    Escape("into the Pod's cgroup", "echo $$ > $pod/cgroup.procs" + _REACHED, _DENIED),
    Escape(
        "a cgroupfs of its own, in namespaces",
        "mkdir $TMPDIR/cgroups\n"
        "export own=$TMPDIR/cgroups\n"
        "unshare -UrmC sh -c 'mount -t cgroup2 none $own && echo max > $own/memory.max'" + _REACHED,
        f"{_DENIED}|{NOT_PERMITTED}",
    ),
    Escape("the Pod's device", "opens /dev/fgpu$gpu", NOT_PERMITTED),
    Escape("mknod", "mknod $TMPDIR/made c 4 $minor" + _REACHED, NOT_PERMITTED),
    Escape(
        "a namespace of users",
        "unshare -Ur sh -c '. $functions; opens /dev/fgpu$gpu'",
        NOT_PERMITTED,
    ),
    Escape("the Pod's /proc/PID/root", "opens /proc/$process/root/dev/fgpu$gpu", _DENIED),
    Escape(
        "the Pod's namespaces",
        "nsenter -t $process -m true" + _REACHED,
        f"{_DENIED}|{NOT_PERMITTED}",
    ),
    Escape(
        "variables of its own",
        "SLURM_JOB_GPUS=$gpu CUDA_VISIBLE_DEVICES=$gpu sh -c '. $functions; opens /dev/fgpu$gpu'",
        NOT_PERMITTED,
    ),
    Escape(
        "a step beside",
        "srun --overlap --gres=none sh -c '. $functions; opens /dev/fgpu$gpu'",
        NOT_PERMITTED,
    ),
    Escape(
        "a step of more devices",
        f"srun --overlap --gres=gpu:8 echo {ESCAPED}",
        "Invalid generic resource",
    ),
    Escape("a step of more cores", f"srun --overlap -n4 echo {ESCAPED}", "More processors requested"),
    Escape(
        "more devices for its job",
        "scontrol update jobid=$SLURM_JOB_ID gres=gpu:8" + _REACHED,
        "no longer pending",
    ),
    Escape(
        "memory past its limit",
        "python3 -c 'bytearray(300 << 20)'" + _REACHED,
        "Killed",
    ),
    Escape("the node agent's socket", _ASK_AGENT, _DENIED),
)
"""Attempts of the user alice, in the batch step of alice's job."""
