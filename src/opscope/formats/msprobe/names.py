# SPDX-License-Identifier: Apache-2.0
"""Names of entries in dump.json.

    {Prefix}.{api}.{call}.{forward|backward}                     an API
    {Module|Cell}.{path}.{Class}.{forward|backward}.{call}       a module
    {Module|Cell}.{path}.{Class}.parameters_grad[.{call}]        gradients of its parameters
    {name}.{call}.debug, {name}_grad.{call}.debug                saved by hand

Module paths contain dots, the class never does: names are read from the right.
"""

from __future__ import annotations

import re

import msgspec

_API = re.compile(
    r"(?P<prefix>[^.]+)\.(?P<api>.+)\.(?P<call>\d{1,15})\.(?P<phase>forward|backward)"
)
_MODULE = re.compile(
    r"(?:Module|Cell)\.(?:(?P<path>.+)\.)?(?P<kind>[^.]+)\.(?P<phase>forward|backward)\.(?P<call>\d{1,15})"
)
_GRADIENT = re.compile(
    r"(?:Module|Cell)\.(?:(?P<path>.+)\.)?(?P<kind>[^.]+)\.parameters_grad(?:\.(?P<call>\d{1,15}))?"
)
_DEBUG = re.compile(r"(?P<name>.+)\.(?P<call>\d{1,15})\.debug")
# Where the APIs of a prefix stand in Python, for those who call them again.
PLACES = {
    "Functional": "torch.nn.functional",
    "Torch": "torch",
    "Tensor": "torch.Tensor",
    "VF": "torch._VF",
    "Aten": "torch.ops.aten",
    "Distributed": "torch.distributed",
    "NPU": "torch_npu",
    "Mint": "mindspore.mint",
    "MintFunctional": "mindspore.mint.nn.functional",
    "MintDistributed": "mindspore.mint.distributed",
    "Primitive": "mindspore.ops",
}


class EntryName(msgspec.Struct, frozen=True):
    """What a name says: level, op (Functional.linear, Conv1d), module path (None for APIs), phase,
    call number.
    """

    level: str
    op: str
    module: str | None
    phase: str
    call: int
    kind: str = "call"  # call | gradient | debug


def parse_name(name: str) -> EntryName | None:
    """The parts of an entry's name, None for one of no known shape."""
    parts = _MODULE.fullmatch(name)
    if parts:
        return EntryName(
            "module", parts["kind"], parts["path"] or "", parts["phase"], int(parts["call"])
        )
    parts = _GRADIENT.fullmatch(name)
    if parts:
        return EntryName(
            "module",
            parts["kind"],
            parts["path"] or "",
            "backward",
            int(parts["call"] or 0),
            "gradient",
        )
    parts = _API.fullmatch(name)
    if parts:
        phase = (
            "communication"
            if parts["prefix"] in {"Distributed", "MintDistributed"}
            else parts["phase"]
        )
        return EntryName(
            "api", f"{parts['prefix']}.{parts['api']}", None, phase, int(parts["call"])
        )
    parts = _DEBUG.fullmatch(name)
    if parts:
        phase = "backward" if parts["name"].endswith("_grad") else "forward"
        return EntryName("api", "debug", None, phase, int(parts["call"]), "debug")
    return None


def forward_name(name: str) -> str | None:
    """Name of the forward entry whose gradient an entry computes, None for forward entries."""
    if ".backward" in name:
        head, _, tail = name.rpartition(".backward")
        return f"{head}.forward{tail}"
    if ".parameters_grad" in name:
        return f"{name.rpartition('.parameters_grad')[0]}.forward.0"
    return None
