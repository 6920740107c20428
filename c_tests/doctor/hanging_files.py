# SPDX-License-Identifier: Apache-2.0
"""A file system that does not respond: FUSE without a server. Needs root and /dev/fuse."""

import contextlib
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2


@contextlib.contextmanager
def mounted(directory):
    """Mounts it at a directory; raises OSError if that is not permitted."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"kvmem-test", os.fsencode(directory), b"fuse", 0, options) != 0:
            raise OSError(ctypes.get_errno(), "mount")
        try:
            yield
        finally:
            libc.umount2(os.fsencode(directory), MNT_DETACH)
    finally:
        os.close(device)
