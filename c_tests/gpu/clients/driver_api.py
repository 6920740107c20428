# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver by ctypes, on device 0 in its primary context, for a program that does not use kvmem."""

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

POSIX_FD = 1
READ_WRITE = 3
BUFFER_ID = 7
LAZY_ENABLE_PEER_ACCESS = 1

_library = ctypes.CDLL("libcuda.so.1")


class IpcHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class Properties(ctypes.Structure):
    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location", Location),
        ("metadata", c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


DEVICE_0 = Location(1, 0)


def call(name, *arguments):
    result = getattr(_library, name)(*arguments)
    if result != 0:
        text = ctypes.c_char_p()
        _library.cuGetErrorName(result, byref(text))
        raise RuntimeError(f"{name} returned {result}, {(text.value or b'?').decode()}")


def start():
    context = c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", byref(context), 0)
    call("cuCtxSetCurrent", context)


def uuid():
    bytes_16 = (ctypes.c_ubyte * 16)()
    call("cuDeviceGetUuid_v2", bytes_16, 0)
    return bytes(bytes_16)


def read(address, size):
    data = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", data, c_uint64(address), c_size_t(size))
    return data.raw


def write(address, data):
    call("cuMemcpyHtoD_v2", c_uint64(address), data, c_size_t(len(data)))
    call("cuCtxSynchronize")


def allocate(size):
    address = c_uint64()
    call("cuMemAlloc_v2", byref(address), c_size_t(size))
    return address.value


def free(address):
    call("cuMemFree_v2", c_uint64(address))


def allocation_at(address):
    """Returns the base and the size of the allocation that contains an address."""
    base, size = c_uint64(), c_size_t()
    call("cuMemGetAddressRange_v2", byref(base), byref(size), c_uint64(address))
    return base.value, size.value


def buffer_id(address):
    number = c_uint64()
    call("cuPointerGetAttribute", byref(number), BUFFER_ID, c_uint64(address))
    return number.value


def ipc_handle(address):
    handle = IpcHandle()
    call("cuIpcGetMemHandle", byref(handle), c_uint64(address))
    return bytes(handle.bytes)


def ipc_open(handle):
    address = c_uint64()
    by_value = IpcHandle((ctypes.c_ubyte * 64)(*handle))
    call("cuIpcOpenMemHandle_v2", byref(address), by_value, LAZY_ENABLE_PEER_ACCESS)
    return address.value


def ipc_close(address):
    call("cuIpcCloseMemHandle", c_uint64(address))


class Mapped:
    """VMM memory at an address: created here, or imported from a descriptor."""

    def __init__(self, size, fd=None):
        self.size = size
        self._handle = c_uint64()
        if fd is None:
            properties = Properties(1, POSIX_FD, DEVICE_0, None)
            call("cuMemCreate", byref(self._handle), c_size_t(size), byref(properties), c_uint64(0))
        else:
            call("cuMemImportFromShareableHandle", byref(self._handle), c_void_p(fd), POSIX_FD)
        self.address = self._map()

    def _map(self):
        address = c_uint64()
        access = Access(DEVICE_0, READ_WRITE)
        size = c_size_t(self.size)
        call("cuMemAddressReserve", byref(address), size, c_size_t(0), c_uint64(0), c_uint64(0))
        call("cuMemMap", address, size, c_size_t(0), self._handle, c_uint64(0))
        call("cuMemSetAccess", address, size, byref(access), c_size_t(1))
        return address.value

    def export(self):
        fd = c_int(-1)
        call("cuMemExportToShareableHandle", byref(fd), self._handle, POSIX_FD, c_uint64(0))
        return fd.value

    def close(self):
        call("cuCtxSynchronize")
        call("cuMemUnmap", c_uint64(self.address), c_size_t(self.size))
        call("cuMemRelease", self._handle)
        call("cuMemAddressFree", c_uint64(self.address), c_size_t(self.size))
