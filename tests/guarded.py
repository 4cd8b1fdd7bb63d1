"""The `sentiment` command in a process that dies as soon as it reaches out: `python -c "...; main()" serve`.

The kernel ends it at connect(), whoever calls it: Python, ONNX Runtime, the tokenizers' Rust or the event loop's C.
Python's own audit events end it at a look-up of a name, at an object made from a pickle, and at another program.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from typing import Any

CONNECT = {"x86_64": 42, "aarch64": 203}
"""The number of the system call, by machine."""

STATUS = 99
"""What it ends with after an audit event; after a system call the signal is SIGSYS."""

NAMES_OF_THIS_MACHINE = {None, "127.0.0.1", b"127.0.0.1"}
FORBIDDEN = {
    "pickle.find_class",
    "socket.connect",
    "socket.gethostbyname",
    "socket.sendto",
    "subprocess.Popen",
    "os.exec",
    "os.posix_spawn",
    "os.system",
    "urllib.Request",
}


class _Program(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def forbid_connections() -> None:
    """Let the kernel end this process at connect(); all threads that are started from here on too."""
    instructions = (
        (0x20, 0, 0, 0),  # load the call's number
        (0x15, 0, 1, CONNECT[platform.machine()]),  # unless it is this one, leave out the next
        (0x06, 0, 0, 0x80000000),  # end the process
        (0x06, 0, 0, 0x7FFF0000),  # allow
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in instructions))
    program = _Program(len(instructions), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_seccomp, filtered = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(set_seccomp, filtered, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel takes no filter")


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in FORBIDDEN or (event == "socket.getaddrinfo" and arguments[0] not in NAMES_OF_THIS_MACHINE):
        os.write(2, f"forbidden: {event} {arguments!r}\n".encode())
        os._exit(STATUS)


def forbid_the_rest() -> None:
    """End this process at any audit event that is forbidden."""
    sys.addaudithook(_audit)


def main() -> None:
    """Run the command under guard."""
    if platform.machine() in CONNECT and sys.platform == "linux":
        forbid_connections()
    forbid_the_rest()
    from service.cli import main as command

    command()
