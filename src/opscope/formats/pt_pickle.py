# SPDX-License-Identifier: Apache-2.0
"""Walk the pickle inside a .pt file without executing anything.

Only the opcodes a tree of tensors needs are known; a global name is a word to compare and never
imported; REDUCE is answered for the few builders below and gives a SavedObject (the name alone) for
all others. Nothing in a file can run, whatever it says.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from opscope.run.dtypes import find_dtype

_STACK_LIMIT = 1 << 20
_RANK_LIMIT = 64

_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "QInt8Storage": "qint8",
    "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32",
    "UntypedStorage": "uint8",
    "Float8_e4m3fnStorage": "float8_e4m3fn",
    "Float8_e5m2Storage": "float8_e5m2",
}


class Name(msgspec.Struct, frozen=True):
    """A global name in a pickle, "module name"; compared, never imported."""

    text: str


class Storage(msgspec.Struct, frozen=True):
    """Bytes that tensors view: their member in the zip, type, device and number of elements."""

    key: str
    dtype: str
    device: str
    numel: int


class SavedTensor(msgspec.Struct, frozen=True):
    """A tensor as the file describes it; offset and stride in elements."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool


class SavedObject(msgspec.Struct, frozen=True):
    """Anything built by a name this reader does not know, kept as that name."""

    name: str


class PickleError(ValueError):
    """Why a pickle is not walked further, and at which of its bytes."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


class _Mark:
    pass


_MARK = _Mark()


class Walker:
    """A pickle machine that builds only plain containers, Storage and SavedTensor."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def fail(self, reason: str) -> PickleError:
        return PickleError(reason, self.at)

    def take(self, count: int) -> bytes:
        part = self.data[self.at : self.at + count]
        if len(part) != count or count < 0:
            raise self.fail("cut short")
        self.at += count
        return part

    def line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + 512)
        if end < 0:
            raise self.fail("a name without an end")
        text = self.data[self.at : end].decode("utf-8", "replace")
        self.at = end + 1
        return text

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise self.fail("takes more than it put down")
        return self.stack.pop()

    def push(self, value: Any) -> None:
        if len(self.stack) >= _STACK_LIMIT:
            raise self.fail("more items than any saved tensor has")
        self.stack.append(value)

    def marked(self) -> list[Any]:
        for position in range(len(self.stack) - 1, -1, -1):
            if self.stack[position] is _MARK:
                items = self.stack[position + 1 :]
                del self.stack[position:]
                return items
        raise self.fail("an end without a beginning")

    def run(self) -> Any:
        while self.at < len(self.data):
            opcode = self.data[self.at]
            self.at += 1
            if opcode == 0x2E:
                return self.pop()
            step = _OPCODES.get(opcode)
            if step is None:
                raise self.fail(
                    f"opcode {opcode:#04x} has no place in a saved tensor; the file is not read"
                )
            step(self)
        raise self.fail("cut short")


def _global(walker: Walker) -> None:
    walker.push(Name(f"{walker.line()} {walker.line()}"))


def _stack_global(walker: Walker) -> None:
    name, module = walker.pop(), walker.pop()
    if not (isinstance(name, str) and isinstance(module, str)):
        raise walker.fail("a name that is no text")
    walker.push(Name(f"{module} {name}"))


def _persistent(walker: Walker) -> None:
    parts = walker.pop()
    if not (
        isinstance(parts, tuple)
        and len(parts) >= 5
        and parts[0] == "storage"
        and isinstance(parts[1], Name)
    ):
        raise walker.fail("a reference that is not a storage")
    _, kind, key, device, numel = parts[:5]
    if not (
        isinstance(key, str)
        and isinstance(device, str)
        and isinstance(numel, int)
        and 0 <= numel < 1 << 62
    ):
        raise walker.fail("a storage of no sensible key, device or size")
    dtype = _STORAGES.get(kind.text.rsplit(" ", 1)[-1])
    if dtype is None:
        raise walker.fail(f"storage type {kind.text!r} is unknown")
    walker.push(Storage(key, dtype, device, numel))


def _ints(value: Any, walker: Walker) -> tuple[int, ...]:
    if (
        isinstance(value, (tuple, list))
        and len(value) <= _RANK_LIMIT
        and all(type(part) is int and 0 <= part < 1 << 62 for part in value)
    ):
        return tuple(value)
    raise walker.fail("a shape or stride that is not a short tuple of sizes")


def _tensor(args: tuple[Any, ...], walker: Walker) -> SavedTensor:
    if len(args) < 4 or not isinstance(args[0], Storage) or type(args[1]) is not int or args[1] < 0:
        raise walker.fail("a tensor without storage, offset, shape and stride")
    storage, dtype = args[0], args[0].dtype
    # _rebuild_tensor_v3 names the type; the storage is untyped
    if len(args) > 6 and isinstance(args[6], Name):
        named = find_dtype(args[6].text.replace(" ", "."))
        if named is None:
            raise walker.fail(f"element type {args[6].text!r} is unknown")
        dtype = named.name
    shape, stride = _ints(args[2], walker), _ints(args[3], walker)
    if len(shape) != len(stride):
        raise walker.fail("shape and stride differ in rank")
    return SavedTensor(
        storage, dtype, args[1], shape, stride, bool(len(args) > 4 and args[4] is True)
    )


def _reduce(walker: Walker) -> None:
    args, target = walker.pop(), walker.pop()
    if not isinstance(target, Name) or not isinstance(args, tuple):
        raise walker.fail("a call of something that is not a name")
    if target.text in {
        "torch._utils _rebuild_tensor_v2",
        "torch._utils _rebuild_tensor",
        "torch._utils _rebuild_tensor_v3",
    }:
        walker.push(_tensor(args, walker))
    elif (
        target.text in {"torch._utils _rebuild_parameter", "torch._tensor _rebuild_from_type_v2"}
        and args
    ):
        walker.push(_wrapped(args))
    elif target.text == "collections OrderedDict":
        walker.push({})
    elif target.text == "torch Size":
        walker.push(args[0] if args else ())
    elif target.text.startswith("torch_npu") and "rebuild" in target.text and args:
        # an NPU tensor with its private format last
        walker.push(_tensor(args, walker))
    else:
        walker.push(SavedObject(target.text))


def _wrapped(args: tuple[Any, ...]) -> Any:
    """The tensor inside a Parameter or a subclass of Tensor."""
    if isinstance(args[0], SavedTensor):
        return args[0]
    if (
        len(args) >= 3
        and isinstance(args[2], tuple)
        and args[2]
        and isinstance(args[2][0], Storage)
    ):
        return SavedObject(args[0].text if isinstance(args[0], Name) else "subclass")
    return SavedObject("subclass")


def _build(walker: Walker) -> None:
    walker.pop()  # attributes of an object; the object stands below


def _set_item(walker: Walker) -> None:
    value, key, target = walker.pop(), walker.pop(), walker.pop()
    _assign(walker, target, [key, value])
    walker.push(target)


def _assign(walker: Walker, target: Any, items: list[Any]) -> None:
    if isinstance(target, SavedObject):
        return
    if not isinstance(target, dict) or len(items) % 2:
        raise walker.fail("items for something that is not a mapping")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, (str, int, float, bool, tuple, type(None))):
            raise walker.fail("a key of no plain type")
        target[key if not isinstance(key, tuple) else repr(key)] = value


def _set_items(walker: Walker) -> None:
    items = walker.marked()
    target = walker.pop()
    _assign(walker, target, items)
    walker.push(target)


def _append(walker: Walker, items: list[Any]) -> None:
    target = walker.pop()
    if not isinstance(target, list):
        raise walker.fail("items for something that is not a list")
    target.extend(items)
    walker.push(target)


def _tuple(count: int) -> Any:
    def step(walker: Walker) -> None:
        items = [walker.pop() for _ in range(count)]
        walker.push(tuple(reversed(items)))

    return step


def _constant(value: Any) -> Any:
    return lambda walker: walker.push(value)


def _number(layout: str) -> Any:
    size = struct.calcsize(layout)
    return lambda walker: walker.push(struct.unpack(layout, walker.take(size))[0])


def _text(width: int) -> Any:
    def step(walker: Walker) -> None:
        data = walker.take(int.from_bytes(walker.take(width), "little"))
        try:
            walker.push(data.decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            raise walker.fail("a text that is no UTF-8") from None

    return step


def _octets(width: int) -> Any:
    return lambda walker: walker.push(walker.take(int.from_bytes(walker.take(width), "little")))


def _long(walker: Walker) -> None:
    walker.push(int.from_bytes(walker.take(walker.take(1)[0]), "little", signed=True))


def _put(width: int) -> Any:
    def step(walker: Walker) -> None:
        if not walker.stack:
            raise walker.fail("nothing to remember")
        walker.memo[int.from_bytes(walker.take(width), "little")] = walker.stack[-1]

    return step


def _get(width: int) -> Any:
    def step(walker: Walker) -> None:
        key = int.from_bytes(walker.take(width), "little")
        if key not in walker.memo:
            raise walker.fail("recalls what it never remembered")
        walker.push(walker.memo[key])

    return step


def _memoize(walker: Walker) -> None:
    if not walker.stack:
        raise walker.fail("nothing to remember")
    walker.memo[len(walker.memo)] = walker.stack[-1]


def _skip(width: int) -> Any:
    return lambda walker: walker.take(width)


_OPCODES: dict[int, Any] = {
    0x80: _skip(1),
    0x95: _skip(8),
    ord("("): lambda walker: walker.push(_MARK),
    ord("c"): _global,
    0x93: _stack_global,
    ord("Q"): _persistent,
    ord("R"): _reduce,
    ord("b"): _build,
    ord("s"): _set_item,
    ord("u"): _set_items,
    ord("a"): lambda walker: _append(walker, [walker.pop()]),
    ord("e"): lambda walker: _append(walker, walker.marked()),
    ord("t"): lambda walker: walker.push(tuple(walker.marked())),
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord(")"): _constant(()),
    0x88: _constant(value=True),
    0x89: _constant(value=False),
    ord("N"): _constant(None),
    ord("]"): lambda walker: walker.push([]),
    ord("}"): lambda walker: walker.push({}),
    ord("K"): _number("<B"),
    ord("M"): _number("<H"),
    ord("J"): _number("<i"),
    ord("G"): _number(">d"),
    0x8A: _long,
    ord("X"): _text(4),
    0x8C: _text(1),
    0x8D: _text(8),
    ord("B"): _octets(4),
    ord("C"): _octets(1),
    ord("q"): _put(1),
    ord("r"): _put(4),
    0x94: _memoize,
    ord("h"): _get(1),
    ord("j"): _get(4),
}
