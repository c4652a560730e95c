"""Boots the guest. In QEMU's network, the guest reaches the host's loopback at HOST. The host
reaches only the forwarded ports of the guest, on 127.0.0.1."""

from typing import Final

from deploy.local.components import PLAIN_ENVIRONMENT, Component
from deploy.local.guest.connection import Connection
from deploy.local.guest.image import OURS, GuestImage
from deploy.local.guest.inside.runner import PORT
from deploy.local.layout import Layout
from deploy.local.spec import GUEST, GUEST_CPUS, ClusterSpec

HOST: Final = "10.0.2.2"
ADDRESS: Final = "10.0.2.15"
SAME_PORTS: Final = ("slurmd-guest", "kubelet", "node-agent-metrics", "node-agent-health", "gateway")
"""Listeners in the guest. The host forwards the port of each name to the same port of the guest."""
PORTS: Final = (GUEST, *SAME_PORTS)

_KERNEL_OPTIONS: Final = (
    *("console=ttyS0", "quiet", "root=/dev/nvme0n1", "rw", "rootwait", "rootfstype=ext4"),
    "net.ifnames=0",  # the network card keeps the name eth0, even with udev
    # After a crash, the kernel reboots instead of hanging. QEMU's option -no-reboot makes QEMU end then.
    *("panic=-1", "oops=panic"),
    *("mitigations=off", "cgroup_no_v1=all", "random.trust_cpu=1"),
)
_FIRST: Final = {"cgroupfs": f"{OURS}/init", "systemd": "/usr/lib/systemd/systemd"}
"""The guest's first process, by cgroup driver."""
_BOOTS_WITHIN_S: Final = 120.0
_STARTS: Final = 4
"""Maximum number of boots. On a busy machine, the kernel sometimes crashes while it patches its own
code."""


def guest_component(
    spec: ClusterSpec, image: GuestImage, ports: dict[str, int], layout: Layout
) -> Component:
    """Returns the virtual machine as a component. The component's log is the guest's console."""
    connection = Connection(ports[GUEST])
    return Component(
        name=GUEST,
        argv=_qemu(spec, image, ports, layout),
        # QEMU keeps the writes to the disks in TMPDIR.
        env={**PLAIN_ENVIRONMENT, "TMPDIR": str(layout.directory)},
        is_ready=connection.is_up,
        ready_within_s=_BOOTS_WITHIN_S,
        starts=_STARTS,
    )


def _qemu(
    spec: ClusterSpec, image: GuestImage, ports: dict[str, int], layout: Layout
) -> tuple[str, ...]:
    inside = {ports[GUEST]: PORT, **{ports[name]: ports[name] for name in SAME_PORTS}}
    forwarded = ",".join(f"hostfwd=tcp:127.0.0.1:{here}-:{there}" for here, there in inside.items())
    kernel_line = " ".join((*_KERNEL_OPTIONS, f"init={_FIRST[spec.guest_cgroups]}"))
    console = f"file,id=console,path={layout.log(GUEST)},append=on"
    return (
        "qemu-system-x86_64",
        *("-accel", "tcg,thread=multi,tb-size=512"),
        *("-cpu", "max"),
        *("-smp", f"{GUEST_CPUS},sockets=1,cores={GUEST_CPUS},threads=1"),
        *("-m", str(spec.guest_memory_mb)),
        *("-nodefaults", "-no-user-config", "-no-reboot"),
        *("-display", "none"),
        *("-chardev", console, "-serial", "chardev:console"),
        *("-kernel", image.kernel, "-append", kernel_line),
        *("-drive", f"file={image.disk},format=raw,if=none,id=disk,snapshot=on"),
        *("-device", "nvme,drive=disk,serial=disk"),
        *(_store(image.store) if image.store else ()),
        *("-netdev", f"user,id=net,{forwarded}"),
        *("-device", "virtio-net-pci,netdev=net,romfile="),
    )


def _store(disk: str) -> tuple[str, ...]:
    """Returns QEMU's options for the disk of containerd's images. inside/prepare mounts the disk."""
    drive = f"file={disk},format=raw,if=none,id=store,snapshot=on"
    return ("-drive", drive, "-device", "virtio-blk-pci,drive=store")
