# SPDX-License-Identifier: Apache-2.0
"""What of a command line and an environment may stand in a file that is handed on: only what is
harmless by its kind.

A list of what secrets look like is never complete, so values are kept for what they are: numbers,
paths that exist, words that everybody knows, variables that frameworks read. Everything else is
HIDDEN, its name stays; names and values that look like a secret are hidden whatever they are.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from opscope.run.dtypes import find_dtype

HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASS|PWD|CRED|AUTH|COOKIE|SESSION|JWT|WEBHOOK|PRIVATE|SIGNATURE|CERT|DSN|BEARER|LICEN[CS]E"
    r"|(?:^|[_.-])(?:PAT|PIN|SAS|URI|URL|CONN(?:ECTION)?(?:_?STR(?:ING)?)?)(?:$|[_.-])",
    re.IGNORECASE,
)
# What only looks so: a folder, and the vocabulary of models.
_NO_SECRET = re.compile(
    r"^(?:OLD)?PWD$|TOKENIZERS?|TOKENS|KEY[_-]?VALUE|KEYWORDS?|PASSES|PIN[_-]?MEMORY|COMPASS|BYPASS",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"gh[a-z]_\w{16}|github_pat_|glpat-|sk-[\w-]{16}|xox[a-z]-|hf_\w{16}|AKIA[0-9A-Z]{12}|eyJ[\w-]{8,}\.|AIza[\w-]{20}|npm_\w{20}|pypi-\w{16}"
    r"|-----BEGIN|://[^/\s]*@|(?:token|key|secret|password|passwd|sig|signature|auth)=",
    re.IGNORECASE,
)
# Variables that change what is computed, or how a run is laid out over processes; their values are
# settings.
_FRAMEWORKS = (
    "TORCH",
    "PYTORCH",
    "ATEN",
    "CUDA",
    "CUBLAS",
    "CUDNN",
    "NVIDIA_",
    "NCCL_",
    "GLOO_",
    "TRITON_",
    "ROCM_",
    "HIP_",
    "HSA_",
    "XLA_",
    "ASCEND",
    "HCCL_",
    "ACL_",
    "GE_",
    "NPU_",
    "ATB_",
    "LCCL_",
    "MS_",
    "MINDSPORE_",
    "GLOG_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "BLIS_",
    "ONEDNN_",
    "DNNL_",
    "NUMEXPR_",
    "OPSCOPE",
    "PYTHON",
    "LD_",
    "LC_",
    "LANG",
    "MASTER_ADDR",
    "PMIX_NAMESPACE",
    "MALLOC_",
    "TCMALLOC_",
)
_NUMBER = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F]{1,16}|(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,4})?)%?"
)
_WORDS = frozenset(
    {
        "true",
        "false",
        "yes",
        "no",
        "on",
        "off",
        "none",
        "null",
        "auto",
        "default",
        "cpu",
        "cuda",
        "npu",
        "gpu",
        "mps",
        "xpu",
        "gloo",
        "nccl",
        "hccl",
        "mpi",
        "tf32",
        "int4",
        "train",
        "training",
        "test",
        "eval",
        "evaluate",
        "validate",
        "infer",
        "inference",
        "predict",
        "pretrain",
        "finetune",
        "run",
        "launch",
        "adam",
        "adamw",
        "sgd",
        "eager",
        "inductor",
        "debug",
        "info",
        "warning",
        "error",
        "critical",
        "low",
        "medium",
        "high",
        "highest",
        "linear",
        "cosine",
        "constant",
        "localhost",
        "c10d",
        "static",
    }
)
_FLAG = re.compile(r"--[A-Za-z][A-Za-z0-9_.-]{0,63}")
_SETTING = re.compile(
    r"\+{0,2}(?:[a-z_][a-z0-9_./-]{0,47}|[A-Z_][A-Z0-9_]{0,47})"
)  # lr=0.1, model.depth=3, OMP_NUM_THREADS=4
_SWITCH = re.compile(r"-(?:[A-Za-z]|([A-Za-z])\1{1,5})|--?")  # -x, -vvv, --
_MODULE = re.compile(r"[A-Za-z_]\w{0,63}(?:\.[A-Za-z_]\w{0,63}){0,8}", re.ASCII)
_SCRIPT = re.compile(r"(?:[\w.-]+/)*[A-Za-z_][\w-]{0,63}\.py", re.ASCII)
_LISTS = re.compile(r"[,;:\[\]() ]")


def public_command(command: Sequence[str]) -> tuple[str, ...]:
    """The words of a command, values that are not harmless by their kind HIDDEN; the name of an
    option or a setting stays.
    """
    return tuple(_words([_plain(word) for word in command]))


def _words(words: Sequence[str]) -> Iterator[str]:
    before = ""
    for number, word in enumerate(words):
        if before and is_secret_name(before):
            yield HIDDEN
        elif number == 0:
            yield (
                word
                if _harmless(word) or (shutil.which(word) and not _SECRET_VALUE.search(word))
                else HIDDEN
            )
        elif before == "-m" and _MODULE.fullmatch(word):
            yield word
        else:
            yield _word(word)
        before = word if word.startswith("-") and "=" not in word else ""


def _word(word: str) -> str:
    name, equals, value = word.partition("=")
    named = _SECRET_VALUE.search(name) is None
    if (
        equals
        and named
        and (_FLAG.fullmatch(name) or (_SETTING.fullmatch(name) and value.strip("=")))
    ):
        return f"{name}={value if _harmless(value) and not is_secret_name(name) else HIDDEN}"
    if (
        (named and not equals and _FLAG.fullmatch(word))
        or _SWITCH.fullmatch(word)
        or _harmless(word)
    ):
        return word
    return f"{word[:2]}{HIDDEN}" if re.match(r"-[A-Za-z]", word) else HIDDEN  # -pPASSWORD


def public_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment by name: what frameworks read and what is harmless by its kind, HIDDEN for
    any other value.

    Names that look like a secret's are left out.
    """
    return {
        _plain(name): _plain(value) if _is_setting(name, value) or _harmless(value) else HIDDEN
        for name, value in sorted(environment.items())
        if not is_secret_name(name)
    }


def is_secret_name(name: str) -> bool:
    """Whether a name looks like that of a secret: GH_PAT, --api-key, DB_PWD."""
    return _SECRET_NAME.search(_NO_SECRET.sub("", name)) is not None


def _is_setting(name: str, value: str) -> bool:
    return name.startswith(_FRAMEWORKS) and _SECRET_VALUE.search(value) is None


def _harmless(value: str) -> bool:
    """Whether a value is a number, a path that exists, a word everybody knows, or a list of
    these.
    """
    if not value or _NUMBER.fullmatch(value) or value.lower() in _WORDS or _SCRIPT.fullmatch(value):
        return True
    if len(value) > 1 << 15 or _SECRET_VALUE.search(value):
        return False
    if find_dtype(value) is not None or _exists(value):
        return True
    parts = [part.strip() for part in _LISTS.split(value)]
    return (
        len(parts) > 1
        and any(parts)
        and all(
            not part or _NUMBER.fullmatch(part) or part.lower() in _WORDS or _is_path(part)
            for part in parts
        )
    )


def _is_path(text: str) -> bool:
    return "/" in text and _exists(text)


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):
        return False


def _plain(text: str) -> str:
    """Text without the lone surrogates that stand for bytes of no encoding, which JSON cannot
    hold.
    """
    return text.encode("utf-8", "backslashreplace").decode()
