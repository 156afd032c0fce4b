# SPDX-License-Identifier: Apache-2.0
"""What the reasons mean that say where an unsound value came from, or what tells that a call is
wrong.
"""

from __future__ import annotations

ORIGINS: dict[str, str] = {
    "arrived unsound": "NaN or infinity came in from outside: a batch, weights of a checkpoint, a "
    "constant. Look at what loads it",
    "holds what none of its recorded inputs held": "the memory was written by something that was "
    "not recorded: a kernel of one's own, another library, NumPy sharing it",
    "its result was not looked at on return": "the result was still on its way (asynchronous, or "
    "in place), and was unsound when the next call read it: the call that made it is named",
    "reads memory that was allocated and never set": "torch.empty, or a buffer that is filled "
    "later: it holds whatever was there before",
    "its first step was skipped, and left what the memory held": "the optimizer's state was made "
    "without values in a step that a scaler skipped: initialise it before",
    "turned a mask of infinities into an unsound value": "-inf is meant, but here it meets a 0, "
    "another infinity, or a row of nothing else: mask with masked_fill, or the lowest number",
    "a NaN that is a scalar argument": "a Python number is NaN: a metric, a scale or a rate that "
    "was computed outside of the recorded calls",
    "argument … of … is …": "a Python number that the call was given is not finite",
    "its value left the tensors and came back": "item() or float() made a Python number of an "
    "unsound tensor, and that number came back as an argument",
    "result of a collective whose inputs on this rank are sound": "another rank sent the unsound "
    "value: look at that rank",
    "… and nobody recorded produced it": "the tensor was made where nobody recorded: before "
    "recording began, or by another library",
    "a tensor that nobody recorded produced": "the tensor was made where nobody recorded: before "
    "recording began, or by another library",
    "made inside …": "the call is one of a composed operator, whose inner call made the value",
    "executed again operator by operator it is sound": "the operators of the compiled graph make "
    "no such value: the compiled code did, or it drew other random numbers",
    "found by executing the compiled graph … again": "the graph was run again operator by "
    "operator, and this is the one that made the value",
    "the back end converts its result": "the kernel computes in another type than the operator's "
    "result has, and the conversion overflowed",
    "its kernel calls …": "the program registered this kernel itself: the fault is in what "
    "it calls",
    "element … of … is …, … expected": "the call was held against a trusted substitute, and this "
    "element is the furthest off",
    "the same inputs gave different bits when the call was run again": "the kernel is not "
    "deterministic (atomic sums), reads memory out of its bounds, or has a race",
    "its gradient formula is not the derivative of its results": "the backward of this function "
    "does not fit its forward, as differences of its results show",
    "raised its overflow status": "the device's registers say that something overflowed, in a type "
    "or place whose values were not seen",
    "beyond what rounding allows": "no order of sums and no usual kernel errs as much: the kernel "
    "is wrong, or computes in a narrower type",
    "errors as of an accumulation in the element type": "the sums are kept in float16 or bfloat16 "
    "where trusted kernels keep them in float32: less exact, but no wrong formula",
    "the norm of all gradients went from …": "all gradients grow or vanish together: a rate, a "
    "missing clip, an initialisation",
    "gradients grow: …": "gradients grow from layer to layer of backward",
    "they underflow": "gradients are below what float16 can hold: scale the loss (GradScaler)",
    "… call it with the same bits and arguments, and it gives something else on each": "one of the "
    "two devices, or its library, computes otherwise: replay the call on both",
    "… train it together, and run different calls": "ranks that should run the same program take "
    "different branches: a condition on data, the rank or an environment",
    "rank … runs …, rank … …": "the first calls that are not the same on both ranks",
    "stay as they were: an update of … at least": "the update is above half a unit of the last "
    "place, and was lost all the same: the optimizer's kernel rounds wrongly or reads old values",
    "status bits …": "what the device's overflow registers held after the call; opscope explain "
    "0x… names each bit",
    "rows that it reads are not finite": "how much of the input was unsound, beside how much of "
    "the output is",
    "hold NaN, though it works row by row": "NaN went from one row into others, which this "
    "operator cannot do: a kernel that reads over the end of a row",
    "the first rows that were not finite": "where to look in the batch",
}
