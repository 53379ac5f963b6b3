"""A process that the kernel ends when it reaches for the network.

A seccomp filter sends SIGSYS at the first socket that is not one of files of this machine (AF_UNIX), whoever asks for
it: Python, MindSpore's C++ code, or a child process. It cannot be taken off again.
"""

from __future__ import annotations

import ctypes
import platform
import socket
import sys

SOCKET = {"x86_64": 41, "aarch64": 198}
"""The number of the system call `socket`, by machine."""
SUPPORTED = sys.platform == "linux" and platform.machine() in SOCKET

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER_MODE = 22, 38, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, KILL_PROCESS = 0x7FFF0000, 0x80000000
NUMBER, FIRST_ARGUMENT = 0, 16
"""Offsets in the kernel's struct seccomp_data."""


class Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32))


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("first", ctypes.POINTER(Instruction)))


def forbid() -> None:
    """From here on, for this process and all that it starts. OSError where the kernel has no seccomp."""
    lines = [
        (LOAD, 0, 0, NUMBER),
        (JUMP_IF_EQUAL, 0, 2, SOCKET[platform.machine()]),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (JUMP_IF_EQUAL, 0, 1, socket.AF_UNIX),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, KILL_PROCESS),
    ]
    # Another call than `socket` jumps to line 4.
    code = (Instruction * len(lines))(*(Instruction(*line) for line in lines))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, FILTER_MODE, ctypes.byref(Program(len(lines), code)), 0, 0),
    ):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "the kernel refuses the filter")
