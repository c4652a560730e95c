"""Creates the device files of NVIDIA's driver without the driver. Runs in the guest, without packages of
this project.

Each argument creates a character device, and a file for the device in /dev. The argument "nvidia0:195:0"
gives the device the kernel's numbers 195 and 0. For "nvidia-cap1::", the kernel chooses the numbers. Any
user may open a device any number of times; the device does nothing. The devices exist while this program
runs. The program prints "ready" after the creation of all devices.

The kernel asks this program how to create and open the devices (CUSE, include/uapi/linux/fuse.h).
"""

import errno
import os
import struct
import sys
import threading

_IN = struct.Struct("=IIQQIIIHH")  # fuse_in_header: length, operation, unique, ...
_OUT = struct.Struct("=IiQ")  # fuse_out_header: length, error, unique
_INIT = struct.Struct("=8I40x")  # cuse_init_out
_OPENED = struct.Struct("=QII")  # fuse_open_out
_PROTOCOL = (7, 31)
_MOST = 131072
_OPEN, _RELEASE, _INTERRUPT, _CUSE_INIT = 14, 18, 36, 4096


def main() -> None:
    """Creates the devices, and serves the devices for ever."""
    for wanted in sys.argv[1:]:
        name, major, minor = wanted.split(":")
        asked = os.open("/dev/cuse", os.O_RDWR)
        _answer(asked, name, int(major or 0), int(minor or 0))  # says how to create the device
        os.chmod(f"/dev/{name}", 0o666)  # noqa: PTH101 -- as NVIDIA's
        threading.Thread(target=_serve, args=(asked, name)).start()
    os.write(sys.stdout.fileno(), b"ready\n")


def _serve(asked: int, name: str) -> None:
    while True:
        _answer(asked, name, 0, 0)


def _answer(asked: int, name: str, major: int, minor: int) -> None:
    """Waits for a request of the kernel, and answers the request."""
    _, operation, unique, *_ = _IN.unpack_from(os.read(asked, _MOST + 4096))
    error, told = 0, b""
    if operation == _CUSE_INIT:
        told = _INIT.pack(*_PROTOCOL, 0, 0, _MOST, _MOST, major, minor) + f"DEVNAME={name}\0".encode()
    elif operation == _OPEN:
        told = _OPENED.pack(0, 0, 0)
    elif operation == _INTERRUPT:
        return  # the interrupted request has an answer already
    elif operation != _RELEASE:
        error = -errno.ENOSYS
    os.write(asked, _OUT.pack(_OUT.size + len(told), error, unique) + told)


if __name__ == "__main__":
    main()
