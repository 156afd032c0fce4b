# SPDX-License-Identifier: Apache-2.0
"""The half of repro.py that judges: tensors in words, and whether what a call gave is the failure
that was recorded.

script.py writes what stands below the mark into the generated script, which has no second file.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opscope.repro.scripts.verdict import CannotTry

# --- judging ---
CLASSES = {"nan": "NaN", "pos_inf": "inf", "neg_inf": "-inf"}
SHORT = {"float": "f", "int": "i", "uint": "u", "bfloat": "bf", "complex": "c"}
# What is allowed where the case does not say, in units of the type's epsilon: a result's rounding,
# and a long sum's. Then: times a trusted kernel's own error, and times the tolerance where there is
# no such kernel.
RELATIVE, SCALED, EASE, ALONE = 4, 4, 8, 8


class Reference:
    """What the same call gives elsewhere: exact in float64 on the CPU, plain in its own types by a
    kernel that is trusted.

    plain is None where no kernel but the suspected one is at hand. Either may lack an output.
    """

    def __init__(self, exact: dict[str, Any], plain: dict[str, Any] | None, origin: str) -> None:
        self.exact = exact
        self.plain = plain
        self.origin = origin


class Finding:
    """Whether the failure shows, in words, and its pattern: what a smaller case must show as
    well.
    """

    def __init__(
        self, told: str, pattern: dict[str, Any] | None = None, *, shown: bool, grade: float = 0.0
    ) -> None:
        self.shown = shown
        self.told = told
        self.pattern = pattern or {}
        self.grade = grade


def number_kind(dtype: Any) -> str:
    if dtype.is_complex:
        return "complex"
    if dtype.is_floating_point:
        return "float"
    return "bool" if dtype is torch.bool else "int"


def statistics(tensor: Any) -> dict[str, Any]:
    """Counts of NaN and infinities, smallest and largest finite element (complex: of the
    magnitude).
    """
    x = tensor.detach().cpu()
    if x.is_complex():
        x = x.to(torch.complex128).abs()
    elif x.dtype not in (torch.float32, torch.float64):
        x = x.to(torch.float32 if x.is_floating_point() else torch.int64)
    counts = dict.fromkeys(CLASSES, 0)
    if x.is_floating_point():
        masks = {"nan": torch.isnan(x), "pos_inf": x == float("inf"), "neg_inf": x == -float("inf")}
        counts = {name: int(mask.sum()) for name, mask in masks.items()}
        x = x[torch.isfinite(x)]
    low, high = (x.min().item(), x.max().item()) if x.numel() else (None, None)
    return {
        "dtype": type_name(tensor),
        "shape": list(tensor.shape),
        "min": low,
        "max": high,
        **counts,
    }


def type_name(tensor: Any) -> str:
    return str(tensor.dtype).partition(".")[2]


def describe(seen: dict[str, Any]) -> str:
    """One line for a tensor: f16[32, 64] x∈[-310, 298] 37 inf."""
    parts = re.match(r"([a-z]+)(\d.*)", seen["dtype"])
    name = (
        printable(seen["dtype"])
        if parts is None
        else SHORT.get(parts.group(1), parts.group(1)) + parts.group(2)
    )
    text = f"{name}{seen['shape']}"
    if seen.get("min") is not None:
        text += f" x∈[{number(seen['min'])}, {number(seen['max'])}]"
    return text + "".join(f"  {seen[c]} {CLASSES[c]}" for c in CLASSES if seen.get(c))


def number(value: float) -> str:
    """Three digits, whole numbers below a million exactly: -310, 65504, 3.4e38, 0.00123."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    mantissa, e, exponent = f"{value:.3g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def classes(seen: dict[str, Any]) -> list[str]:
    return [name for name in CLASSES if seen.get(name)]


def judge_nonfinite(case: dict[str, Any], seen: dict[str, Any]) -> Finding:
    """The failure shows when an output that was not finite has a class of non-finite values it had
    then.
    """
    sentences, pattern = [], {}
    for slot, was in sorted(case["failure"]["outputs"].items()):
        here = classes(seen.get(slot, {}))
        same = [name for name in was if name in here]
        if same:
            pattern[slot] = {"classes": same}
            words = " and ".join(CLASSES[name] for name in same)
            sentences.append(
                f"{words} in output {slot}, as recorded{'' if here == was else ', in part'}"
            )
    if sentences:
        return Finding("; ".join(sentences), pattern, shown=True)
    other = any(classes(tensor) for tensor in seen.values())
    return Finding(
        "other values that are not finite than recorded" if other else "the output is finite",
        shown=False,
    )


def relation(exact: Any, out: Any) -> str:
    """What exact arithmetic gives where the output has values that are not finite: finite, beyond
    the type, or non-finite too.
    """
    if (
        exact is None
        or exact.shape != out.shape
        or number_kind(out.dtype) not in ("float", "complex")
    ):
        return "unknown"
    true = exact.detach().cpu().abs()[~torch.isfinite(out.detach().cpu())]
    if not bool(torch.isfinite(true).all()):
        return "non-finite"
    limit = torch.finfo(out.dtype).max
    return "beyond" if true.numel() and float(true.max()) > limit else "finite"


def beyond(true: Any, out: Any) -> int:
    """How many of these true results the type of the output cannot hold."""
    if number_kind(out.dtype) not in ("int", "float") or true.is_complex():
        return 0
    limits = torch.iinfo(out.dtype) if number_kind(out.dtype) == "int" else torch.finfo(out.dtype)
    if not true.is_floating_point():
        return int(((true > int(limits.max)) | (true < int(limits.min))).sum())
    # Strictly beyond: a float64 of 2**63 may be a rounded 2**63 - 1. What wrapped around is off by
    # 2**64 all the same.
    outside = (true > float(limits.max)) | (true < float(limits.min))
    if out.dtype is torch.int64:
        outside |= (true - out.detach().cpu().to(torch.float64)).abs() > 2.0**63
    return int(outside.sum())


def equals_recorded(row: dict[str, Any], out: Any) -> bool:
    stats, seen = row["stats"], statistics(out)
    return stats.get("min_int") is not None and (stats["min_int"], stats["max_int"]) == (
        seen["min"],
        seen["max"],
    )


def judge_error(case: dict[str, Any], error: BaseException) -> Finding:
    was = case["failure"]["error"]
    text = f"{type(error).__name__}: {first_line(error)}"
    code = device_failure(was["text"])
    same = normal(str(error)) == normal(was["text"]) or (
        code is not None and device_failure(str(error)) == code
    )
    if type(error).__name__ == was["type"] and same:
        return Finding(text, {"error": type(error).__name__}, shown=True)
    if isinstance(error, NotImplementedError) or "out of memory" in str(error).lower():
        raise CannotTry(text) from error
    return Finding("another error: " + text, shown=False)


def device_failure(text: str) -> str | None:
    """What a device says when it has stopped, whoever waited for it; None in other errors."""
    error = re.search(r"\b507\d{3}\b|(CUDA|HIP) error: [\w -]+", text)
    return None if error is None else error[0]


def judge_mismatch(case: dict[str, Any], outputs: dict[str, Any], reference: Reference) -> Finding:
    """Silently wrong: an output is further from the exact result than a trusted kernel in the same
    type, and than rounding.
    """
    sentences, pattern, worst, judged = judge_witnesses(case, outputs)
    wanted = case["failure"]["outputs"] or outputs
    for slot in sorted(slot for slot in outputs if slot in wanted and slot in reference.exact):
        rule = case.get("allowed", {}).get(type_name(outputs[slot]))
        compared = compare(
            outputs[slot], reference.exact[slot], (reference.plain or {}).get(slot), rule
        )
        if compared is None:
            continue
        judged += 1
        wrong, ratio, text = compared
        worst = max(worst, ratio)
        if wrong:
            pattern[slot] = {"classes": classes(statistics(outputs[slot]))}
            sentences.append(
                f"{wrong} of {outputs[slot].numel()} elements of output {slot} are "
                f"wrong{text}, by {reference.origin}"
            )
    if not judged:
        raise CannotTry("no output has a result to be judged by")
    return Finding(
        "; ".join(sentences) or f"the outputs are right, by {reference.origin or 'the witness'}",
        pattern,
        shown=bool(sentences),
        grade=worst,
    )


def judge_witnesses(
    case: dict[str, Any], outputs: dict[str, Any]
) -> tuple[list[str], dict[str, Any], float, int]:
    """Elements that a check found wrong for these inputs: words and patterns of those that still
    are, the worst grade, and how many were looked at. The kernels of this machine are not asked.
    """
    sentences, pattern, worst, judged = [], {}, 0.0, 0
    for witness in case["failure"].get("witnesses") or ():
        out, index = outputs.get(witness["slot"]), tuple(witness["element"])
        if out is None or len(index) != out.dim():
            continue
        if any(at >= size for at, size in zip(index, out.shape)):
            continue
        judged += 1
        here, true = complex(out[index].item()), complex(witness["true"])
        allowed = float(witness.get("tolerance") or 0.0)
        error = abs(here - true)
        same = here == true or (math.isnan(abs(here)) and math.isnan(abs(true)))
        if same or error <= allowed:
            continue
        known = allowed > 0 and math.isfinite(error)
        worst = max(worst, error / allowed if known else float("inf"))
        pattern[witness["slot"]] = {"classes": classes(statistics(out))}
        sentences.append(
            f"element {list(index)} of output {witness['slot']} is {out[index].item()!r}, "
            f"{witness['true']} in truth (found by a check of these inputs)"
        )
    return sentences, pattern, worst, judged


def compare(out: Any, exact: Any, plain: Any, rule: Any = None) -> tuple[int, float, str] | None:
    """Wrong elements, the largest error in units of what is allowed, and words; None when the
    output cannot be judged.
    """
    out, exact = out.detach().cpu(), exact.detach().cpu()
    if out.shape != exact.shape:
        return (
            max(out.numel(), 1),
            float("inf"),
            f" (shape {list(out.shape)}, not {list(exact.shape)})",
        )
    if number_kind(out.dtype) not in ("float", "complex"):
        # Positions and counts that come of floating numbers may differ by rounding: only a kernel
        # in the same types can tell.
        true = (
            plain
            if plain is not None and plain.shape == out.shape
            else None
            if exact.is_floating_point()
            else exact
        )
        if true is None:
            return None
        wrong = int((out != true.to(out.dtype)).sum())
        return wrong, float("inf") if wrong else 0.0, ""
    wide = torch.complex128 if out.is_complex() else torch.float64
    rounded = exact.to(out.dtype).to(wide)
    here, true, usual = (
        out.to(wide),
        exact.to(wide),
        None if plain is None else plain.detach().cpu().to(wide),
    )
    masked = ~(torch.isfinite(here) & torch.isfinite(rounded))
    astray = (
        masked
        & unlike(here, rounded)
        & (unlike(here, usual) if usual is not None else torch.ones_like(masked))
    )
    error, allowed = (
        (here - true).abs()[~masked],
        allowance(out.dtype, true[~masked], None if usual is None else usual[~masked], rule),
    )
    ratio = error / allowed
    worst = float("inf") if bool(astray.any()) else float(ratio.max()) if ratio.numel() else 0.0
    wrong = count(astray) + count(ratio > 1)
    text = (
        f" (off by up to {number(float(error.max()))}, "
        f"{number(float(allowed[ratio.argmax()]))} is allowed)"
        if ratio.numel()
        else ""
    )
    narrow = (
        0.0
        if wrong or usual is None
        else narrowness(out.dtype, error, (usual - true).abs()[~masked], true.abs()[~masked])
    )
    if narrow > 1:
        return (
            count(error > (usual - true).abs()[~masked]),
            narrow,
            " (errors as of an accumulation in the element type)",
        )
    return wrong, worst, text


def narrowness(dtype: Any, error: Any, own: Any, size: Any) -> float:
    """Root mean square error of a narrow type, in units of what opscope.judge.replayed allows;
    above 1: sums were rounded to it.
    """
    unit = torch.finfo(dtype).eps / 2
    if unit < 2.0**-11 or error.numel() < 32:
        return 0.0
    mine, theirs, least = (math.sqrt(float(each.square().mean())) for each in (error, own, size))
    return mine / max(2.5 * max(theirs, 0.3 * unit * least), 1e-300)


def unlike(here: Any, there: Any) -> Any:
    """Where two tensors differ in the class of a value: NaN, inf, -inf, finite."""
    apart = torch.isnan(here) != torch.isnan(there)
    if not here.is_complex():
        apart |= (here == float("inf")) != (there == float("inf"))
        apart |= (here == -float("inf")) != (there == -float("inf"))
    return apart | (torch.isfinite(here) != torch.isfinite(there))


def count(mask: Any) -> int:
    """How many are true, without torch's sum, which may be what is wrong."""
    return int(mask.flatten().tolist().count(True))


def allowance(dtype: Any, true: Any, usual: Any, rule: Any) -> Any:
    """Error allowed to each element, as opscope.judge.replayed has it: rounding, and the trusted
    kernel's own error.
    """
    limits, size = torch.finfo(dtype), true.abs()
    usual_rule = {
        "absolute": limits.tiny,
        "relative": RELATIVE * limits.eps,
        "scaled": SCALED * limits.eps,
        "own": "largest",
    }
    rule = rule or usual_rule
    own = (
        torch.zeros_like(size)
        if usual is None
        else torch.nan_to_num((usual - true).abs(), 0.0, 0.0, 0.0)
    )
    floor = float(rule["absolute"]) + float(rule["relative"]) * size
    if rule["own"] == "once":
        return (
            torch.maximum(floor, own if usual is not None else limits.eps * size / 2) + limits.tiny
        )
    largest = float(size.max()) if size.numel() else 0.0
    if rule["own"] == "largest" and size.numel():
        own = torch.full_like(own, float(own.max()))
    return (
        (ALONE if usual is None else 1) * floor
        + torch.clamp(EASE * own, min=float(rule["scaled"]) * largest)
        + limits.tiny
    )


class Kept:
    """What the arguments of a call held before it, and in which memories they lie."""

    def __init__(self, tensors: dict[str, Any]) -> None:
        self.tensors = tensors
        self.before = {slot: tensor.detach().clone() for slot, tensor in tensors.items()}


def judge_memory(operator: Any, stored: Kept, outputs: dict[str, Any]) -> Finding:
    """What the operator's schema promises: arguments that are only read stay as they are, views
    share memory, new results do not.
    """
    written, sentences = written_arguments(operator._schema), []
    pattern: dict[str, Any] = {}
    changed = {
        memory_of(tensor) for slot, tensor in stored.tensors.items() if head_of(slot) in written
    }
    for slot, tensor in stored.tensors.items():
        if memory_of(tensor) not in changed and not same_bytes(tensor, stored.before[slot]):
            pattern[f"argument {slot}"] = {"classes": []}
            sentences.append(
                f"argument {slot} was changed, which the operator only reads by its schema"
            )
    aliases = [each.alias_info for each in operator._schema.returns]
    views, fresh = (
        all(each is not None and not each.is_write for each in aliases),
        all(each is None for each in aliases),
    )
    for slot, output in outputs.items():
        if (
            slot in stored.tensors
            and output is stored.tensors[slot]
            and slot not in map(str, range(len(aliases)))
        ):
            continue  # an argument that was written, and no result
        shared = any(
            memory_of(output) == memory_of(tensor)
            for tensor in stored.tensors.values()
            if tensor.numel()
        )
        if output.numel() and (fresh if shared else views):
            pattern[f"result {slot}"] = {"classes": []}
            sentences.append(
                f"output {slot} "
                f"{'shares memory with an argument, though it' if shared else 'is a copy, though it is a view'}"  # noqa: E501
            )
            sentences[-1] += " is new by its schema" if shared else " of an argument by its schema"
    return Finding(
        "; ".join(sentences) or "arguments and results lie and stay as the schema says",
        pattern,
        shown=bool(sentences),
    )


def head_of(slot: str) -> str:
    """The argument that a slot is part of: 1 of 1.0, kwargs.out of kwargs.out."""
    parts = slot.split(".")
    return ".".join(parts[: 2 if parts[0] == "kwargs" else 1])


def written_arguments(schema: Any) -> set[str]:
    """Arguments that an operator writes to: marked in its schema, or known to torch all the same
    (running statistics).
    """
    known, arguments = getattr(torch._C, "_SchemaInfo", None), set()
    for position, argument in enumerate(schema.arguments):
        marked = argument.alias_info is not None and argument.alias_info.is_write
        if marked or (known is not None and known(schema).is_mutable(argument.name)):
            arguments |= {f"kwargs.{argument.name}", str(position)}
    return arguments


def memory_of(tensor: Any) -> Any:
    """Where a tensor's memory begins; torch before 2.0 had typed ones alone."""
    memory = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return tensor.device, memory.data_ptr()


def same_bytes(mine: Any, other: Any) -> bool:
    """Whether two tensors of one type and shape hold the same bytes: a NaN equals itself."""
    left, right = (tensor.detach().reshape(-1) for tensor in (mine, other))
    if mine.is_complex():
        left, right = (
            torch.view_as_real(left.resolve_conj()),
            torch.view_as_real(right.resolve_conj()),
        )
    return torch.equal(left, right) or bool(
        ((left == right) | (torch.isnan(left) & torch.isnan(right))).all()
    )


def normal(text: str) -> str:
    """An error text without what changes from run to run: addresses, numbers, spaces."""
    line = (text.strip().splitlines() or [""])[0]
    return re.sub(r"\s+", " ", re.sub(r"0x[0-9a-fA-F]+|\d+", "#", line)).strip()


def first_line(error: BaseException) -> str:
    return printable((str(error).strip().splitlines() or [type(error).__name__])[0])


def printable(text: Any) -> str:
    """Text without control characters: what a run recorded must not drive a terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(text))[:400]


class Decomposed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes the operator by PyTorch's decomposition, which is other code for the same
    mathematics.
    """

    def __init__(self, operator: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        from torch._decomp import decomposition_table

        self.operator, self.instead = operator, decomposition_table.get(operator)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = self.instead if func is self.operator and self.instead is not None else func
        return made(*args, **(kwargs or {}))


def is_random(operator: Any, tree: dict[str, Any]) -> bool:
    """Whether the result of a call with these arguments depends on a generator: dropout of
    probability 0 draws nothing.
    """
    if "nondeterministic_seeded" not in str(getattr(operator, "tags", "")):
        return False
    for position, argument in enumerate(operator._schema.arguments):
        if argument.name in ("dropout_p", "dropout"):
            return bool(
                tree["args"][position]
                if position < len(tree["args"])
                else tree["kwargs"].get(argument.name, 0.0)
            )
    return True


def wider_results(case: dict[str, Any], outputs: dict[str, Any], reference: Reference) -> list[str]:
    """What the same call gives in float64 on the CPU, for each output that was not finite."""
    sentences = []
    for slot in sorted(case["failure"]["outputs"]):
        if slot not in reference.exact or slot not in outputs:
            continue
        exact = reference.exact[slot]
        if exact.dtype is outputs[slot].dtype and reference.plain is None:
            continue
        true = statistics(exact)
        line = f"wide  {slot:<8} {describe(true)} in {reference.origin}"
        largest, limit = (
            max(abs(true["min"] or 0), abs(true["max"] or 0)),
            torch.finfo(outputs[slot].dtype).max,
        )
        if largest > limit:
            line += (
                f"; {number(largest)} is beyond {number(limit)}, the largest "
                f"{type_name(outputs[slot])}"
            )
        else:
            told_there = any(true[name] for name in ("nan", "pos_inf", "neg_inf"))
            line += (
                "; the failure is there too"
                if told_there
                else "; wider arithmetic avoids the failure"
            )
        sentences.append(line)
    return sentences
