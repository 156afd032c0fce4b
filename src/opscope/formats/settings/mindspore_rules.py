# SPDX-License-Identifier: Apache-2.0
"""Rules between the settings of MindSpore's dump, for each back end and compile level.

A setting whose effect a back end cannot give is an error before the program starts, with the row of
the manual's matrix that says so; one that is merely passed over there is a note. Source: MindSpore
2.3 documents, "Dump功能调试", its two support matrices and the paragraphs of the settings; charsets of
path and net_name: MindSpore's parser.
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from opscope.errors import UsageError
from opscope.formats.settings.kinds import Request
from opscope.formats.settings.problem import Problem
from opscope.formats.settings.steps import wrong_steps

BACKENDS = {"cpu": "CPU", "gpu": "GPU", "ascend": "Ascend", "npu": "Ascend"}
# MindSpore 2.4 and later name back ends instead of compile levels.
LEVELS = {"o0": "O0", "o1": "O1", "o2": "O2", "ms_backend": "O1", "ge": "O2"}
DEVICE_STATISTICS = frozenset({"max", "min", "avg", "l2norm"})
OURS = "opscope run -- python … offers it on every device"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a file is to work: back end, compile level, mode, and whether it is enabled through
    MS_ACL_DUMP_CFG_PATH.

    synchronous_wanted is what the file asks for; synchronous is what it gets, since CPU and GPU
    know no other dump.
    """

    backend: str = "Ascend"
    level: str | None = None
    pynative: bool = False
    acl: bool = False
    exception_dump: str | None = None
    sink: bool | None = None
    synchronous_wanted: bool = True

    @property
    def synchronous(self) -> bool:
        return self.synchronous_wanted or self.backend != "Ascend"


def target_of(request: Request, document: object = None) -> Target:
    """The target a request names; of a document it is read whether it means synchronous or
    asynchronous dump.
    """
    backend = BACKENDS.get((request.backend or "Ascend").lower())
    if backend is None:
        raise UsageError(f"--backend {request.backend!r}: not one of CPU, GPU, Ascend")
    level = None if request.level is None else LEVELS.get(request.level.lower())
    if request.level is not None and level is None:
        raise UsageError(f"--level {request.level!r}: not one of O0, O1, O2, ms_backend, GE")
    if document is None:
        wanted = backend != "Ascend" or (not request.acl and level != "O2" and not request.pynative)
    else:
        e2e = document.get("e2e_dump_settings") if isinstance(document, dict) else None
        wanted = isinstance(e2e, dict) and e2e.get("enable", True) is not False
    return Target(
        backend=backend,
        level=level,
        pynative=request.pynative,
        acl=request.acl,
        sink=request.sink,
        synchronous_wanted=wanted,
        exception_dump=request.exception_dump,
    )


class Facts(msgspec.Struct, frozen=True):
    """A file's two tables and its target, as the rules look at them."""

    common: Mapping[str, Any]
    e2e: Mapping[str, Any] | None
    target: Target
    environment: Mapping[str, str]

    @property
    def mode(self) -> int:
        return int(self.common.get("dump_mode", 0))

    @property
    def debug(self) -> int:
        return int(self.common.get("op_debug_mode", 0))

    @property
    def statistics(self) -> bool:
        return bool(self.common.get("saved_data", "tensor") != "tensor")

    @property
    def extra(self) -> Mapping[str, Any]:
        return self.e2e or {}


Rule = Callable[[Facts], "Problem | None"]


def _placed(key: str) -> str:
    return (
        key
        if key.startswith(("e2e_dump_settings", "ascend_config"))
        else f"common_dump_settings.{key}"
    )


def _error(key: str, text: str, rule: str) -> Problem:
    return Problem("error", _placed(key), text, rule)


def _note(key: str, text: str, rule: str) -> Problem:
    return Problem("note", _placed(key), text, rule)


def broken_rules(
    common: Mapping[str, Any],
    e2e: Mapping[str, Any] | None,
    target: Target,
    environment: Mapping[str, str],
) -> list[Problem]:
    """Every rule that these settings break, in the order of the manual."""
    facts = Facts(common, e2e, target, environment)
    return [problem for rule in RULES if (problem := rule(facts)) is not None]


def wrong_texts(common: Mapping[str, Any]) -> list[Problem]:
    """What is wrong in the settings wherever they are to work: step ranges and kernels that cannot
    be read.
    """
    facts = Facts(common, {}, Target(), {})
    problems = (rule(facts) for rule in (_iteration, _kernels))
    return [problem for problem in problems if problem is not None and problem.severity == "error"]


def _path(facts: Facts) -> Problem | None:
    path = facts.common.get("path", "")
    if not path:
        folder = facts.environment.get("MS_DIAGNOSTIC_DATA_PATH")
        if folder:
            return _note(
                "path",
                f"is empty: the dump goes to {folder}/debug_dump ($MS_DIAGNOSTIC_DATA_PATH)",
                "path",
            )
        return _error(
            "path",
            "is empty; give an absolute path (opscope prepare --path DIR), or set "
            "MS_DIAGNOSTIC_DATA_PATH",
            "path",
        )
    if not path.startswith("/"):
        return _error(
            "path", f"{path!r} is relative; MindSpore takes an absolute path only", "path"
        )
    if re.fullmatch(r"[A-Za-z0-9_/-]*", path) is None:
        return _error(
            "path", f"{path!r}: MindSpore takes letters, digits, '-', '_' and '/' only", "path"
        )
    return None


def _net_name(facts: Facts) -> Problem | None:
    name = facts.common.get("net_name")
    if name is None or re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return None
    return _error(
        "net_name", f"{name!r}: MindSpore takes letters, digits, '-' and '_' only", "net_name"
    )


def _iteration(facts: Facts) -> Problem | None:
    text = facts.common.get("iteration")
    if text is None or text == "all":
        return None
    wrong = wrong_steps(text)
    return None if wrong is None else _error("iteration", f'{wrong}, or "all"', "iteration")


def _pynative_overflow(facts: Facts) -> Problem | None:
    if not (
        facts.target.pynative
        and facts.debug in {1, 2, 3}
        and facts.common.get("iteration", "all") != "all"
    ):
        return None
    return _error(
        "iteration",
        'in PyNative mode overflow checking needs iteration "all"',
        "asynchronous dump, iteration",
    )


def _sink(facts: Facts) -> Problem | None:
    if facts.target.backend == "GPU" and facts.target.sink:
        return _error(
            "e2e_dump_settings",
            "on GPU the dump needs dataset_sink_mode=False",
            "synchronous dump, step 3",
        )
    return None


def _synchronous_o2(facts: Facts) -> Problem | None:
    if (
        facts.target.backend != "Ascend"
        or not facts.target.synchronous
        or facts.target.level != "O2"
    ):
        return None
    return _error(
        "e2e_dump_settings.enable",
        "synchronous dump does nothing at O2; leave e2e_dump_settings out (asynchronous dump)",
        "matrix of synchronous dump, column O2",
    )


def _enable_false(facts: Facts) -> Problem | None:
    if (
        facts.e2e is None
        or facts.e2e.get("enable", True) is not False
        or facts.target.backend == "Ascend"
    ):
        return None
    return _note(
        "e2e_dump_settings.enable",
        f"false has no effect on {facts.target.backend}: the dump stays synchronous",
        "enable",
    )


def _statistics_on_cpu(facts: Facts) -> Problem | None:
    if not facts.statistics or facts.target.backend != "CPU":
        return None
    return _error(
        "saved_data",
        f"{facts.common['saved_data']!r} stops the program on CPU, statistics exist on GPU "
        "and Ascend; "
        "opscope run --config data_dump.json -- python … offers them on CPU",
        "saved_data of synchronous dump",
    )


def _statistics_of_bin(facts: Facts) -> Problem | None:
    if (
        facts.target.synchronous
        or not facts.statistics
        or facts.common.get("file_format", "bin") != "bin"
    ):
        return None
    return _error(
        "file_format",
        f'saved_data {facts.common["saved_data"]!r} needs file_format "npy"; with "bin", the '
        "default, "
        "the program stops",
        "saved_data of asynchronous dump",
    )


def _set_dump(facts: Facts) -> Problem | None:
    if facts.mode != 2:
        return None
    if facts.target.pynative:
        return _error(
            "dump_mode", "2 (set_dump) works in graph mode only; take 0 or 1", "dump_mode"
        )
    if not facts.target.synchronous:
        return _error(
            "dump_mode",
            "2 (set_dump) exists in synchronous dump only",
            "matrix of asynchronous dump, row set_dump",
        )
    if facts.target.backend != "Ascend":
        return _error(
            "dump_mode",
            f"2 (set_dump) works on Ascend only; {OURS}",
            "matrix of synchronous dump, row set_dump, note 2",
        )
    return None


def _kernels(facts: Facts) -> Problem | None:
    kernels = facts.common.get("kernels")
    if kernels is None:
        return None
    if facts.mode != 1:
        return (
            _note("kernels", f"has no effect beside dump_mode {facts.mode}", "kernels")
            if kernels
            else None
        )
    if not kernels:
        return _note(
            "kernels",
            "is empty: MindSpore dumps every operator then (seen in 2.10), as dump_mode 0 does",
            "kernels",
        )
    for name in kernels:
        wrong = _wrong_kernel(name, synchronous=facts.target.synchronous)
        if wrong is not None:
            return _error("kernels", wrong, "kernels")
    return None


def _wrong_kernel(name: str, *, synchronous: bool) -> str | None:
    if name.startswith("name-regex") and not (
        name.startswith("name-regex(") and name.endswith(")")
    ):
        return f"{name!r} is no name-regex(EXPRESSION)"
    if name.startswith("name-regex("):
        try:
            re.compile(name[len("name-regex(") : -1])
        except re.error as error:
            return f"{name!r} is not a regular expression: {error}"
        return None
    if not name.strip():
        return "holds an empty name"
    if not synchronous and "/" not in name and "-op" not in name:
        return (
            f"{name!r} is an operator type; asynchronous dump takes full names and name-regex(…) "
            "only"
        )
    return None


def _kernels_asynchronous(facts: Facts) -> Problem | None:
    if facts.target.synchronous or facts.mode != 1 or facts.target.level not in {"O0", "O1"}:
        return None
    return _error(
        "dump_mode",
        f"asynchronous dump cannot name operators at {facts.target.level}; use synchronous dump",
        "matrix of asynchronous dump, row operator names",
    )


def _support_device(facts: Facts) -> Problem | None:
    if facts.target.backend == "CPU" and "support_device" in facts.common:
        return _note(
            "support_device", "has no effect on CPU, and must stay in the file", "support_device"
        )
    devices = facts.common.get("support_device")
    if devices is not None and (not devices or min(devices) < 0):
        return _error("support_device", "names no device; write [0, 1, …]", "support_device")
    return None


def _trans_flag(facts: Facts) -> Problem | None:
    if facts.target.backend == "CPU" and "trans_flag" in facts.extra:
        return _note(
            "e2e_dump_settings.trans_flag",
            "has no effect on CPU, and must stay in the file",
            "trans_flag",
        )
    return None


def _debug_synchronous(facts: Facts) -> Problem | None:
    if not facts.target.synchronous or facts.debug == 0:
        return None
    rule = "matrix of synchronous dump, row overflow, note 2"
    if facts.debug in {1, 2}:
        return _error(
            "op_debug_mode",
            f"{facts.debug} exists in asynchronous dump only; synchronous dump has 0, 3 and 4",
            "op_debug_mode",
        )
    if facts.target.backend != "Ascend":
        what = "overflow dump" if facts.debug == 3 else "exception dump"
        return _error("op_debug_mode", f"{facts.debug} ({what}) works on Ascend only; {OURS}", rule)
    return None


def _debug_asynchronous(facts: Facts) -> Problem | None:
    if facts.target.synchronous or facts.debug == 0:
        return None
    if facts.debug == 4:
        rule = "op_debug_mode of asynchronous dump"
        return (
            None
            if facts.target.acl
            else _error(
                "op_debug_mode",
                "4 works with ACL dump only; set MS_ACL_DUMP_CFG_PATH (--acl)",
                rule,
            )
        )
    if facts.target.level in {"O0", "O1"}:
        return _error(
            "op_debug_mode",
            f"asynchronous dump finds no overflow at {facts.target.level}; use synchronous dump",
            "matrix of asynchronous dump, row overflow",
        )
    return None


def _debug_and_mode(facts: Facts) -> Problem | None:
    if facts.debug == 0 or facts.mode == 0:
        return None
    return _error(
        "dump_mode",
        f"{facts.mode} is void while op_debug_mode is {facts.debug}: only operators that "
        "overflow or fail are "
        "dumped; set dump_mode to 0",
        "dump_mode of asynchronous dump",
    )


def _overflow_number(facts: Facts) -> Problem | None:
    if "overflow_number" not in facts.common or facts.debug == 3:
        return None
    return _error("overflow_number", "goes with op_debug_mode 3 only", "overflow_number")


def _file_format(facts: Facts) -> Problem | None:
    if facts.target.synchronous and "file_format" in facts.common:
        return _note(
            "file_format",
            "has no effect in synchronous dump, whose files are .npy",
            "matrix of synchronous dump, row file_format",
        )
    return None


def _categories(facts: Facts) -> Problem | None:
    wanted = facts.common.get("statistic_category")
    if wanted is None:
        return None
    if not facts.statistics:
        return _note(
            "statistic_category", 'has no effect while saved_data is "tensor"', "statistic_category"
        )
    beyond = [name for name in wanted if name not in DEVICE_STATISTICS]
    if facts.extra.get("stat_calc_mode") == "device" and beyond:
        return _error(
            "statistic_category",
            f"{', '.join(beyond)}: the device works out max, min, avg and l2norm only",
            "stat_calc_mode",
        )
    return None


def _device_statistics(facts: Facts) -> Problem | None:
    if facts.extra.get("stat_calc_mode") != "device":
        return None
    key = "e2e_dump_settings.stat_calc_mode"
    if facts.target.backend != "Ascend":
        return _error(
            key, f'"device" works on Ascend only, this is {facts.target.backend}', "stat_calc_mode"
        )
    if not facts.target.synchronous:
        return _error(
            key,
            '"device" exists in synchronous dump only',
            "matrix of asynchronous dump, row statistics",
        )
    if facts.common.get("saved_data", "tensor") != "statistic":
        return _note(
            key,
            '"device" has no effect unless saved_data is "statistic": tensors are reduced on '
            "the host",
            "stat_calc_mode",
        )
    return None


def _sampling(facts: Facts) -> Problem | None:
    mode = facts.extra.get("sample_mode", 0)
    if mode != 1:
        if "sample_num" not in facts.extra:
            return None
        return _note(
            "e2e_dump_settings.sample_num", "has no effect unless sample_mode is 1", "sample_num"
        )
    key, rule = "e2e_dump_settings.sample_mode", "matrix of synchronous dump, row sampling, note 2"
    if facts.target.backend != "Ascend":
        return _error(key, f"1 (sampling) works on Ascend only; {OURS}", rule)
    if not facts.target.synchronous:
        return _error(
            key,
            "1 (sampling) exists in synchronous dump only",
            "matrix of asynchronous dump, row sampling",
        )
    if facts.target.level not in {None, "O0"}:
        return _error(
            key, f"1 (sampling) works at O0 only, this is {facts.target.level}", "sample_mode"
        )
    return None


def _e2e_in_asynchronous(facts: Facts) -> Problem | None:
    if facts.target.synchronous or facts.e2e is None:
        return None
    given = [key for key in facts.e2e if key in {"trans_flag", "save_kernel_args", "sample_num"}]
    if not given:
        return None
    return _note(
        f"e2e_dump_settings.{given[0]}",
        "has no effect: enable is false, so the dump is asynchronous",
        "enable",
    )


def _acl(facts: Facts) -> Problem | None:
    if not facts.target.acl:
        return None
    if facts.target.backend != "Ascend":
        return Problem(
            "error",
            "MS_ACL_DUMP_CFG_PATH",
            f"ACL dump works on Ascend only, this is {facts.target.backend}",
            "MS_ACL_DUMP_CFG_PATH",
        )
    if facts.target.exception_dump == "2":
        return _error(
            "ascend_config.exception_dump",
            '"2" (light exception dump) cannot go with ACL dump; "1" can',
            "notes of the manual",
        )
    return None


def _pynative(facts: Facts) -> Problem | None:
    if not facts.target.pynative or facts.target.backend == "Ascend":
        return None
    return _note(
        "e2e_dump_settings",
        "in PyNative mode only @jit parts and the compiled backward are dumped; "
        f"{OURS}, Cells and primitives included",
        "overview, dynamic graph",
    )


RULES: tuple[Rule, ...] = (
    _path,
    _net_name,
    _iteration,
    _pynative,
    _pynative_overflow,
    _sink,
    _synchronous_o2,
    _enable_false,
    _statistics_on_cpu,
    _statistics_of_bin,
    _set_dump,
    _kernels,
    _kernels_asynchronous,
    _support_device,
    _trans_flag,
    _debug_synchronous,
    _debug_asynchronous,
    _debug_and_mode,
    _overflow_number,
    _file_format,
    _categories,
    _device_statistics,
    _sampling,
    _e2e_in_asynchronous,
    _acl,
)
