# SPDX-License-Identifier: Apache-2.0
"""Another tool's settings as what a recording of ours is asked to do: `opscope run --config
data_dump.json`.

A data_dump.json, an acl.json or msprobe's config.json, told apart by content, becomes the words of
record.config and an Export: how the recording is written in that tool's own tree (`--layout`).
docs/dump-function.md has each setting and what becomes of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from opscope.errors import UsageError
from opscope.formats.settings import acl, mindspore, msprobe
from opscope.formats.settings.mindspore_rules import wrong_texts
from opscope.formats.settings.problem import Problem, errors
from opscope.formats.settings.table import check_table

Words = dict[str, str | bool]
# Operators that add into memory others read, as both frameworks call them: op_debug_mode 2, the
# overflow of atomic additions.
ACCUMULATING = (
    r"name-regex((?i)(scatter|index)_?(nd_?)?(add|put|reduce)|all_?reduce|reduce_?scatter|embedding\w*(backward|grad)"
    r"|unsorted_?segment_?sum)"
)
_VALUES_ONLY = {"overflow": "overflow", "exception": "anomaly"}
EVERY_DEVICE = tuple(range(8))


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """How a recording is written in the tool's own tree.

    statistics are names of statistic.csv's optional columns, None for the tool's default; only is
    "" (every call), "overflow" (calls with status bits or non-finite outputs) or "exception"
    (inputs of the call that raised); sample is how many elements from each end are kept of a
    tensor, None for all.
    """

    path: str = ""
    net_name: str = "Net"
    data: str = "tensor"
    statistics: tuple[str, ...] | None = None
    file_format: str = "npy"
    synchronous: bool = True
    only: str = ""
    sample: int | None = None
    arguments: bool = True


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """What a settings file asks for: words of record.config, the export, and what has no effect
    here.
    """

    tool: str
    words: Words
    export: Export
    notes: tuple[str, ...] = ()


def recording_of(document: Any, environment: Mapping[str, str]) -> Recording:
    """The recording a parsed settings file asks for; UsageError, all faults in one line, for one
    that is wrong.
    """
    if isinstance(document, dict) and "common_dump_settings" in document:
        return _of_mindspore(document, environment)
    if isinstance(document, dict) and "dump" in document:
        return _of_acl(document)
    if isinstance(document, dict) and ({"task", "level", "dump_path"} & document.keys()):
        return _of_msprobe(document)
    raise UsageError(
        "neither a data_dump.json (common_dump_settings), nor an acl.json (dump), nor "
        "msprobe's config.json (task)"
    )


def _refuse(problems: list[Problem] | tuple[Problem, ...]) -> None:
    wrong = errors(problems)
    if wrong:
        raise UsageError("; ".join(problem.line() for problem in wrong))


def _of_mindspore(document: Mapping[str, Any], environment: Mapping[str, str]) -> Recording:
    """MindSpore's settings; what its back ends refuse (statistics on CPU, say) is possible here, so
    only the keys are checked.
    """
    common, e2e = document["common_dump_settings"], document.get("e2e_dump_settings", {})
    problems = check_table(document, mindspore.TABLES)
    problems += check_table(
        common, [_optional(key) for key in mindspore.COMMON_KEYS], at="common_dump_settings"
    )
    problems += check_table(e2e, mindspore.E2E_KEYS, at="e2e_dump_settings")
    _refuse(problems)
    _refuse([*mindspore.statistics_of(common), *wrong_texts(common)])
    synchronous = "e2e_dump_settings" in document and e2e.get("enable", True)
    debug = common.get("op_debug_mode", 0)
    export = Export(
        path=_mindspore_path(common, environment),
        net_name=common.get("net_name", "Net"),
        data=common.get("saved_data", "tensor"),
        statistics=tuple(common["statistic_category"]) if "statistic_category" in common else None,
        file_format="npy" if synchronous else common.get("file_format", "bin"),
        synchronous=bool(synchronous),
        only={0: "", 4: "exception"}.get(debug, "overflow"),
        arguments=bool(e2e.get("save_kernel_args", False)),
        sample=e2e.get("sample_num", 100) if e2e.get("sample_mode", 0) == 1 else None,
    )
    return Recording(
        tool="mindspore",
        words=_mindspore_words(common, export),
        export=export,
        notes=_mindspore_notes(common, e2e),
    )


def _optional(key: Any) -> Any:
    return msgspec.structs.replace(key, required=False)


def _mindspore_path(common: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    if common.get("path"):
        return str(common["path"])
    folder = environment.get("MS_DIAGNOSTIC_DATA_PATH")
    return f"{folder}/debug_dump" if folder else ""


def _mindspore_words(common: Mapping[str, Any], export: Export) -> Words:
    words: Words = {
        "values": _VALUES_ONLY.get(export.only, "anomaly" if export.data == "statistic" else "full")
    }
    if common.get("iteration", "all") != "all":
        words["steps"] = common["iteration"]
    devices = common.get("support_device")
    if devices is not None and tuple(devices) != EVERY_DEVICE:
        words["ranks"] = ",".join(map(str, devices))
    words["io"] = {0: "both", 1: "input", 2: "output"}[common.get("input_output", 0)]
    if common.get("dump_mode", 0) == 1 and common.get("kernels") and not export.only:
        words["ops"] = ",".join(map(kernel_pattern, common["kernels"]))
    if common.get("dump_mode", 0) == 2:
        words["set_dump"] = True
    debug = common.get("op_debug_mode", 0)
    if debug in {1, 2}:
        words["skip" if debug == 1 else "ops"] = ACCUMULATING
    return words


def kernel_pattern(kernel: str) -> str:
    """An entry of `kernels` as a PATTERN of ours.

    name-regex(RE) is compared with the whole name, as MindSpore does (2.10; ours is searched for);
    a text without scope and id is an operator type, found anywhere in the name, whatever its case;
    a full name is itself.
    """
    if kernel.startswith("name-regex(") and kernel.endswith(")"):
        flags, body = _FLAGS_FIRST.fullmatch(kernel[len("name-regex(") : -1]).groups()  # type: ignore[union-attr] # matches any text
        return f"name-regex({flags}^(?:{body}){_COUNTED})"
    if "/" not in kernel and "-op" not in kernel:
        return f"*{kernel}*"
    return f"name-regex(^{re.escape(kernel)}{_COUNTED})"


_FLAGS_FIRST = re.compile(r"((?:\(\?[aiLmsux]+\))?)(.*)", re.DOTALL)
# a kernel that runs again in one step has a number of ours behind its name
_COUNTED = r"(?:#\d+)?$"


def _mindspore_notes(common: Mapping[str, Any], e2e: Mapping[str, Any]) -> tuple[str, ...]:
    said = []
    if common.get("kernels") and common.get("dump_mode", 0) != 1:
        said.append(f"kernels has no effect beside dump_mode {common.get('dump_mode', 0)}")
    if common.get("dump_mode", 0) == 1 and not common.get("kernels"):
        said.append("kernels is empty: every operator, as MindSpore (2.10) takes it")
    if e2e.get("stat_calc_mode") == "device":
        said.append(
            "stat_calc_mode device: statistics are worked out where the tensor lies anyway, "
            "all of them"
        )
    if common.get("statistic_category") and common.get("saved_data", "tensor") == "tensor":
        said.append(
            "statistic_category has no effect on files while saved_data is tensor; the run "
            "holds all statistics"
        )
    return tuple(said)


def _of_acl(document: Mapping[str, Any]) -> Recording:
    _refuse(acl.check(document))
    dump = document["dump"]
    only = (
        "overflow"
        if dump.get("dump_debug") == "on"
        else "exception"
        if dump.get("dump_scene") in acl.EXCEPTION_SCENES
        else ""
    )
    data = "statistic" if dump.get("dump_data") == "stats" else "tensor"
    words: Words = {"values": _VALUES_ONLY.get(only, "anomaly" if data == "statistic" else "full")}
    if dump.get("dump_step"):
        words["steps"] = dump["dump_step"]
    words["io"] = (
        {"all": "both"}.get(dump.get("dump_mode", "output"), dump.get("dump_mode", "output"))
        if not only
        else "both"
    )
    layers = [layer for entry in dump.get("dump_list", ()) for layer in entry.get("layer", ())]
    if layers:
        words["ops"] = ",".join(map(kernel_pattern, layers))
    statistics = (
        tuple(_ACL_STATISTICS[name] for name in dump["dump_stats"])
        if "dump_stats" in dump
        else None
    )
    export = Export(
        path=str(dump.get("dump_path", "")),
        data=data,
        statistics=statistics,
        file_format="bin",
        synchronous=False,
        only=only,
    )
    return Recording(tool="acl", words=words, export=export)


_ACL_STATISTICS = {
    "Max": "max",
    "Min": "min",
    "Avg": "avg",
    "Nan": "nan count",
    "Negative Inf": "negative inf count",
    "Positive Inf": "positive inf count",
    "L2norm": "l2norm",
}


def _of_msprobe(document: Mapping[str, Any]) -> Recording:
    _refuse(msprobe.check(document))
    task = msprobe.task_of(document)
    table = document.get(task, {})
    words: Words = {"values": "full" if task == "tensor" else "anomaly"}
    words["levels"] = _MSPROBE_LEVELS.get(document.get("level", "L1"), "operator,module")
    for key, word in (("step", "steps"), ("rank", "ranks")):
        if parts := _listed(document.get(key, [])):
            words[word] = ("|" if word == "steps" else ",").join(parts)
    if table.get("list"):
        words["ops"] = ",".join(
            name if name.startswith("name-regex(") else f"*{name}*" for name in table["list"]
        )
    words |= _msprobe_sides(table.get("data_mode", ["all"]))
    if "seed" in document:
        words["seed"] = str(document["seed"])
    if document.get("is_deterministic"):
        words["deterministic"] = True
    export = Export(
        path=str(document.get("dump_path", "")),
        data="tensor" if task == "tensor" else "statistic",
        only="overflow" if task == "overflow_check" else "",
    )
    return Recording(
        tool="msprobe", words=words, export=export, notes=_msprobe_notes(document, table)
    )


_MSPROBE_LEVELS = {
    "L0": "operator,module",
    "L1": "operator,api",
    "L2": "operator",
    "mix": "operator,module,api",
}


def _listed(value: Any) -> list[str]:
    return [str(part) for part in (value if isinstance(value, list) else [value])]


def _msprobe_sides(modes: list[str]) -> Words:
    words: Words = {}
    phases = [mode for mode in ("forward", "backward") if mode in modes]
    sides = [mode for mode in ("input", "output") if mode in modes]
    if len(phases) == 1:
        words["phases"] = phases[0]
    if len(sides) == 1:
        words["io"] = sides[0]
    return words


def _msprobe_notes(document: Mapping[str, Any], table: Mapping[str, Any]) -> tuple[str, ...]:
    said = [
        f"{key} has no effect here"
        for key in ("async_dump", "extra_info", "precision", "risk_level", "dump_enable", "load")
        if key in document
    ]
    if table.get("scope"):
        said.append("scope has no effect here: name operators with --ops, or a range of steps")
    return tuple(said)
