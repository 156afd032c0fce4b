# SPDX-License-Identifier: Apache-2.0
"""Launches the kernel of this case through the python module acl (pyACL), with nothing of
op_test_frame.

    python launch.py [--device N] [--timeout SECONDS]

Each argument gets a buffer of its own between two guards; the argument block is put together as
case.json says. Exit code
0: the kernel ran to its end and left the guards alone, 1: it failed or wrote beside its buffers,
125: it cannot be tried.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import struct
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GUARD, MARK = 512, 0x55
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
FAILED, FINE, CANNOT = 1, 0, 125
HALF = {
    "float32": b"\0\0\0\x3f",
    "float16": b"\0\x38",
    "bfloat16": b"\0\x3f",
    "float64": b"\0\0\0\0\0\0\xe0\x3f",
}
# What a launched kernel ends with when it, not the call, is at fault: AI Core and vector core,
# FFTS+, their timeouts and traps.
OF_THE_KERNEL = frozenset(
    (
        507014,
        507015,
        507016,
        507034,
        507035,
        507036,
        *range(507042, 507046),
        507048,
        507049,
        507050,
        507046,
    )
)


class CannotTry(Exception):  # noqa: N818 - says what it is
    """The case cannot be tried here, with the reason."""


class Device:
    """The calls of acl that a launch needs; every one that fails says which and with what code."""

    def __init__(self, acl: Any, number: int) -> None:
        self.acl = acl
        self._checked("acl.init", acl.init())
        self._checked("acl.rt.set_device", acl.rt.set_device(number))
        self.stream = self._given("acl.rt.create_stream", acl.rt.create_stream())

    def _checked(self, what: str, code: int) -> None:
        if code != 0:
            raise CannotTry(f"{what} failed with {code}")

    def _given(self, what: str, result: Any) -> Any:
        value, code = result
        self._checked(what, code)
        return value

    def memory(self, data: bytes) -> int:
        """Device memory with these bytes."""
        pointer: int = self._given("acl.rt.malloc", self.acl.rt.malloc(len(data), 0))
        self.write(pointer, data)
        return pointer

    def write(self, pointer: int, data: bytes) -> None:
        """Copy bytes to the device."""
        self._checked(
            "acl.rt.memcpy",
            self.acl.rt.memcpy(
                pointer, len(data), self.acl.util.bytes_to_ptr(data), len(data), HOST_TO_DEVICE
            ),
        )

    def read(self, pointer: int, size: int) -> bytes:
        """Copy bytes from the device."""
        data = bytes(size)
        address = self.acl.util.bytes_to_ptr(data)
        self._checked(
            "acl.rt.memcpy", self.acl.rt.memcpy(address, size, pointer, size, DEVICE_TO_HOST)
        )
        copied: bytes = self.acl.util.ptr_to_bytes(address, size)
        return copied

    def function(self, binary: bytes, names: list[str]) -> int:
        """Handle of the kernel's function in its binary."""
        made = self.acl.rt.create_binary(self.acl.util.bytes_to_ptr(binary), len(binary))
        handle = self._given("acl.rt.binary_load", self.acl.rt.binary_load(made))
        for name in names:
            handle_of_function, code = self.acl.rt.binary_get_function(handle, name)
            if code == 0:
                return int(handle_of_function)
        raise CannotTry(f"the binary has no function {', '.join(names)}")

    def sync_address(self) -> int:
        """The address that cores of both kinds meet at, the first argument of an FFTS kernel."""
        getter = getattr(self.acl.rt, "get_hardware_sync_addr", None)
        if getter is None:
            raise CannotTry(
                "this pyACL has no acl.rt.get_hardware_sync_addr, which a kernel for both "
                "kinds of core needs"
            )
        return int(self._given("acl.rt.get_hardware_sync_addr", getter()))

    def launch(
        self, function: int, dim: int, block: int, size: int, milliseconds: int
    ) -> tuple[str, int]:
        """Launch and wait: which call ended it and with what code, 0 where the kernel ran to its
        end.
        """
        code = self.acl.rt.launch_kernel(function, dim, block, size, self.stream)
        if code != 0:
            return "acl.rt.launch_kernel", code
        waiting = getattr(self.acl.rt, "synchronize_stream_with_timeout", None)
        code = (
            waiting(self.stream, milliseconds)
            if waiting is not None
            else self.acl.rt.synchronize_stream(self.stream)
        )
        return "acl.rt.synchronize_stream", code


def content(buffer: dict[str, Any]) -> bytes:
    """The bytes a buffer starts with: those dumped, else halves for floating inputs, and zeros,
    which are also valid indices.
    """
    size = int(buffer["size"])
    if buffer["file"] is None:
        half = HALF.get(buffer["dtype"], b"\0") if buffer["io"] == "input" else b"\0"
        return (half * (size // len(half) + 1))[:size]
    path = HERE / buffer["file"]
    if path.suffix == ".npy":
        data: bytes = importlib.import_module("numpy").load(path, allow_pickle=False).tobytes()
    else:
        data = path.read_bytes()
    return data[:size].ljust(size, b"\0")


def run(acl: Any, case: dict[str, Any], number: int, seconds: float) -> tuple[int, str]:
    """Exit code and one sentence."""
    plan = case["launch"]
    binary = (HERE / case["binary"]).read_bytes()
    device = Device(acl, number)
    function = device.function(binary, plan["functions"])
    guard = bytes([MARK]) * GUARD
    places = [device.memory(guard + content(buffer) + guard) for buffer in plan["buffers"]]
    block = device.memory(bytes(8 * len(plan["words"])))
    words = [word_of(word, places, block, device) for word in plan["words"]]
    device.write(block, struct.pack(f"<{len(words)}Q", *words))
    call, code = device.launch(
        function, int(plan["block_dim"]), block, 8 * len(words), int(seconds * 1000)
    )
    if code in OF_THE_KERNEL:
        return FAILED, f"the kernel failed: {call} gives {code}"
    if code != 0:
        raise CannotTry(f"{call} failed with {code}")
    return kept(device, plan["buffers"], places, guard)


def word_of(word: dict[str, Any], places: list[int], block: int, device: Device) -> int:
    """One word of the argument block: a value, or an address of this launch."""
    kind, value = word["kind"], int(word["value"])
    if kind == "buffer":
        return places[value] + GUARD
    if kind == "block":
        return block + value
    return device.sync_address() if kind == "sync" else value


def kept(
    device: Device, buffers: list[dict[str, Any]], places: list[int], guard: bytes
) -> tuple[int, str]:
    """Keeps what the kernel wrote, and tells a buffer it wrote beside."""
    for number, (buffer, address) in enumerate(zip(buffers, places, strict=True)):
        size = int(buffer["size"])
        held = device.read(address, size + 2 * GUARD)
        if buffer["io"] == "output":
            (HERE / "outputs").mkdir(exist_ok=True)
            (HERE / "outputs" / f"launched.{number}.bin").write_bytes(held[GUARD : GUARD + size])
        for where, bytes_there in (("before", held[:GUARD]), ("behind", held[GUARD + size :])):
            if bytes_there != guard:
                return (
                    FAILED,
                    f"the kernel wrote {where} {buffer['label']}, outside its {size} bytes",
                )
    return FINE, "the kernel ran to its end and wrote nowhere beside its buffers"


def main() -> int:
    """Launch the case and say how it went."""
    parser = argparse.ArgumentParser(description="Launch this kernel through pyACL.")
    parser.add_argument("--device", type=int, default=0, help="number of the device")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds the kernel may take")
    options = parser.parse_args()
    case = json.loads((HERE / "case.json").read_text(encoding="utf-8"))
    try:
        if case.get("launch") is None:
            raise CannotTry("the arguments of the kernel are not known")
        if not (HERE / case["binary"]).is_file():
            raise CannotTry(f"{HERE / case['binary']} is missing: put the kernel's .o there")
        if importlib.util.find_spec("acl") is None:
            raise CannotTry("the python module acl is not installed here: run this where CANN is")
        code, text = run(importlib.import_module("acl"), case, options.device, options.timeout)
        invented = [
            one["label"]
            for one in case["launch"]["buffers"]
            if one["io"] in ("input", "unknown") and one["size"] and one["file"] is None
        ]
        text += (
            f" (values of {', '.join(invented)} were not dumped: invented ones took their place)"
            if invented
            else ""
        )
    except CannotTry as error:
        code, text = CANNOT, str(error)
    except Exception as error:  # noqa: BLE001 - another version of acl: that is no verdict on the kernel
        code, text = CANNOT, f"{type(error).__name__}: {error}"
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
