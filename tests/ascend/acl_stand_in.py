# SPDX-License-Identifier: Apache-2.0
"""A stand-in of the python module acl: it checks every call as the manual describes it, and runs
L2Loss on its memory.

Host and device memory are told apart: a pointer of the one given where the other is wanted fails.
What it does beside that is
said in the environment: STAND_IN_FAILS is a code that waiting for the stream gives, STAND_IN_BESIDE
makes the kernel write behind its output.
"""

import os
import struct

_host, _device, _binaries = {}, {}, {}
_made = {"next": 0x12C0_4000_0000, "init": False, "set": None}


def init(config=None):
    assert not _made["init"]
    _made["init"] = True
    return 0


def _fresh(size, start):
    place = _made["next"]
    _made["next"] += -(-(size + 512) // 512) * 512
    return place + start


def _at(memory, pointer):
    for start, data in memory.items():
        if start <= pointer < start + max(1, len(data)):
            return start, data
    raise AssertionError(f"no memory at {pointer:#x}")


class util:
    @staticmethod
    def bytes_to_ptr(data):
        assert isinstance(data, bytes)
        place = _fresh(len(data), 0x7F00_0000_0000)
        _host[place] = bytearray(data)
        return place

    @staticmethod
    def ptr_to_bytes(pointer, size):
        start, data = _at(_host, pointer)
        return bytes(data[pointer - start : pointer - start + size])


class rt:
    @staticmethod
    def set_device(number):
        assert _made["init"]
        assert isinstance(number, int)
        _made["set"] = number
        return 0

    @staticmethod
    def create_stream():
        assert _made["set"] is not None
        return 77, 0

    @staticmethod
    def malloc(size, policy):
        assert isinstance(size, int)
        assert size > 0
        assert policy in (0, 1, 2)
        place = _fresh(size, 0)
        _device[place] = bytearray(size)
        return place, 0

    @staticmethod
    def memcpy(to, most, source, count, kind):
        assert kind in (1, 2)
        assert 0 < count <= most
        into, outof = (_device, _host) if kind == 1 else (_host, _device)
        (start, target), (first, data) = _at(into, to), _at(outof, source)
        assert to - start + count <= len(target)
        assert source - first + count <= len(data)
        target[to - start : to - start + count] = data[source - first : source - first + count]
        return 0

    @staticmethod
    def create_binary(pointer, size):
        start, data = _at(_host, pointer)
        assert start == pointer
        assert bytes(data[:4]) == b"\x7fELF"
        assert size == len(data)
        _binaries[5] = bytes(data)
        return 5

    @staticmethod
    def binary_load(binary):
        assert binary in _binaries
        return 6, 0

    @staticmethod
    def binary_get_function(handle, name):
        assert handle == 6
        assert isinstance(name, str)
        return (9, 0) if name.encode() in _binaries[5] else (0, 107000)

    @staticmethod
    def launch_kernel(function, dim, block, size, stream):
        assert (function, stream) == (9, 77)
        assert dim >= 1
        assert size % 8 == 0
        start, data = _at(_device, block)
        assert start == block
        assert len(data) >= size
        values, result = struct.unpack_from("<2Q", data)
        (first, source), (second, target) = _at(_device, values), _at(_device, result)
        floats = struct.unpack_from(f"<{62 * 62}f", source, values - first)
        struct.pack_into("<f", target, result - second, sum(value * value for value in floats) / 2)
        if os.environ.get("STAND_IN_BESIDE"):
            target[result - second + 4] = 1
        return 0

    @staticmethod
    def synchronize_stream_with_timeout(stream, milliseconds):
        assert stream == 77
        assert milliseconds > 0
        return int(os.environ.get("STAND_IN_FAILS", "0"))
