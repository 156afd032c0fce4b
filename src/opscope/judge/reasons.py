# SPDX-License-Identifier: Apache-2.0
"""What the reasons that findings give mean, and what is usually done about them: of an overflow or
a NaN, where it came from, of crashes and of ranks and runs that part.
"""

from __future__ import annotations

import re

OVERFLOWS: dict[str, str] = {
    "division by the scalar 0": "the program divides by the number 0: often a count or a length "
    "that is empty",
    "division by zero": "elements of the divisor are 0: add a small number to it, or put another "
    "number in their place (torch.where) before dividing, not after",
    "divisors in …": "no divisor is 0, but they are so small that the quotient leaves its type: "
    "bound them from below",
    "logarithm of a negative number": "a logarithm is defined above 0 (log1p: above -1): bound its "
    "argument, or look for what made it negative",
    "logarithm of zero": "log(0) is -inf: bound the argument from below, or compute in logarithms "
    "from the start (log_softmax, logsigmoid)",
    "reciprocal of the root of zero": "1/sqrt(0): add a small number inside of the root; the "
    "gradient of a root at 0 is that, too",
    "square root of a negative number": "a root is defined from 0 on: often a difference that "
    "rounding made negative; bound it at 0",
    "exponential of … leaves …": "the exponential is beyond the largest number of its type: take "
    "the maximum away first, as softmax and logsumexp do, or bound the argument",
    "every element of a row is masked with -inf": "a softmax of nothing but -inf is 0/0: leave an "
    "element of each row unmasked, or mask with the lowest finite number",
    "power … of zero": "a negative power of 0 is a division by 0: add a small number to the base",
    "fractional power of a negative number": "it has no real value: bound the base at 0",
    "base in …, result leaves …": "the power is beyond the largest number of its type: a smaller "
    "base, or a wider type for this line",
    "infinity times zero": "an infinity, often a mask's, meets a 0, and that is NaN: choose by "
    "torch.where or masked_fill, do not multiply by a mask",
    "infinity minus infinity": "two infinities cancel to NaN: often a mask of -inf, added twice or "
    "taken away again",
    "mean of nothing": "a mean over no element is 0/0: an empty batch, a mask that leaves nothing",
    "mean over no target": "every target is ignored (ignore_index), so the mean of the loss is "
    "0/0: leave such a batch out, or take the sum",
    "a target's class has log-probability -inf": "the loss is infinite: the class of a target was "
    "masked, or its probability is 0",
    "a mask of -inf is multiplied or leaves a row empty": "-inf times 0 is NaN, and a row of which "
    "nothing is left has no softmax: mask with masked_fill, and leave an element in each row",
    "argument in … lies outside of the function's domain": "acos, asin, atanh and their like are "
    "defined on an interval: bound the argument, which rounding may push over its end",
    "a variance of 0 with eps 0": "a normalisation divides by the root of the variance: give it an "
    "eps, or, where sums leave their type, compute it in float32",
    "result leaves …": "a sum or a product is beyond the largest number of its type: smaller "
    "inputs (scale them first), bfloat16 or float32 for this line",
    "saturated at …, the end of the range of …": "an integer was clipped at the end of its type: "
    "int64, or smaller numbers",
    "saturated at …": "the device clips what leaves a type to its largest number in place of "
    "infinity: what is said of the same operator where that is infinite holds here",
    "… has no …": "a negative number was converted to an unsigned integer type: bound it at 0",
    "invalid floating-point operation": "an operation without an answer, which is NaN: 0/0, "
    "inf - inf, 0 * inf, a root or a logarithm of a negative number",
    "… to … overflow": "a conversion to a type of smaller range met a number beyond its largest: "
    "keep this tensor in its type, or in bfloat16",
    "input in …": "what the operator read; no more is known of why its result is not finite",
    "… leaves …": "a number is beyond the largest of the type that it is converted to: keep this "
    "tensor in its type, or in bfloat16",
}

# Where an unsound value came from, or what tells that a call is wrong.
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

CRASHES: dict[str, str] = {
    "the process died in this call": "no exception told of it: a signal (11: memory that is not "
    "the program's; 9: killed, often for memory) or an exit of native code while the call ran. "
    "Record its inputs with --journal OP, then opscope repro runs it alone",
    "this call had not returned for … s when the process was stopped": "the call stood still "
    "until somebody ended the process: it waits for another rank, a lock or a device",
    "after this call rank … ended …": "this rank went first, by itself, and the others waited for "
    "it in vain: look at how it ended, not at the errors of the others",
    "… ended in exchanges, where it was missing": "these ranks only waited for the one that had "
    "ended: their errors are what came of it",
    "a device error that was asynchronous": "a device computes behind the program, which hears of "
    "a failure in a later call: --sync makes each launch wait, so that the call that raises is "
    "the one that failed",
    "the device names the kernel …": "the device's own message says which kernel failed; calls "
    "launched since it was last waited for are held against that name",
    "… calls launched since the last one that waited for the device": "one of these calls failed; "
    "record with --sync to know which",
    "…Error: …": "the program's own exception, which nobody caught, raised in this call: its "
    "arguments or inputs are what the operator refuses. opscope show RUN CALL lists them",
    "…Exception: …": "the program's own exception, which nobody caught, raised in this call: its "
    "arguments or inputs are what the operator refuses. opscope show RUN CALL lists them",
}

RANKS: dict[str, str] = {
    "rank … runs … where rank … runs …": "the ranks of a group must run the same collectives in "
    "the same order: one of them took another branch or left one out",
    "rank … does not run this collective in step …": "a rank left out a collective that the others "
    "run, as for a parameter or a batch that it alone did not use: they wait for it",
    "its result differs between rank … and rank …": "a collective that gives all ranks the same "
    "gave them other numbers: a fault of the backend or a link, or memory written too early",
    "…: in … mode on rank …": "one rank runs the module in training mode, another in eval mode: "
    "model.train() or model.eval() is called under a condition that ranks see unlike",
    "…: … train it together and never held the same": "replicas began with other parameters: "
    "broadcast them, seed all ranks alike, or build the wrapper before they are changed",
    "…: … train it together; this gradient updates it on …": "one rank steps its optimizer on a "
    "gradient that another has not used yet: accumulation or skipping goes unlike",
    "…: … train it together; … from here on": "the replicas held the same until here: what writes "
    "the parameter or its gradient on one rank is not what writes it on the other",
    "on rank … a collective wrote its gradient, on rank … none did": "the gradient was averaged on "
    "one rank alone: no_sync, a hook or a wrapper that one of them goes around",
    "rank … writes it by …, rank … by …": "other operators update the replicas: another optimizer, "
    "or another of its implementations (foreach, fused), on one rank",
}

# Why two runs part.
PARTINGS: dict[str, str] = {
    "its inputs agree and its output does not": "the call itself computes otherwise on the two "
    "sides: another kernel, library, type or device, or a fault in one of them. opscope replay "
    "tells which of the two is right",
    "its output differs; what it reads was not recorded on both sides": "the dump holds no inputs "
    "here, so what reached the call may have differed before it",
    "was called with other arguments": "a number, a flag or a size of the call differs",
    "argument … is …, golden has …": "this argument of the call differs: look for the setting or "
    "the default that it comes from",
    "reads a tensor that differs and that no recorded call produced": "a weight, a batch or a "
    "constant came in from outside unlike: load the same weights, seed alike, give the same data",
    "… differs, and no recorded call produced it": "a weight, a batch or a constant came in from "
    "outside unlike: load the same weights, seed alike, give the same data",
    "so do … more tensors that no recorded call produced": "the runs began apart: other weights, "
    "another seed or other data, of which the named tensor is the first",
    "the batch has another size": "the two runs are given batches of unlike sizes: give both the "
    "same, or compare what a batch does not change",
    "is fed by other tensors": "each call beside it agrees, but the call reads what another one "
    "made: a line of the model is wired otherwise",
    "reads a tensor of another origin": "the call reads what another one made than golden's does: "
    "a line of the model is wired otherwise",
    "reads the output of another call": "the call reads what another one made than golden's does: "
    "a line of the model is wired otherwise",
    "reads the same tensor through another view": "a transpose, a reshape or a slice before the "
    "call is another one",
    "reads … where golden reads …": "an input of the call comes from elsewhere than golden's, or "
    "has another type",
    "its operands are swapped": "the two inputs stand in each other's place, and the operator "
    "tells them apart: a subtraction, a division, a matrix product",
    "what it reads is in each other's place": "the two inputs are swapped, or hold what the other "
    "should hold",
    "gives golden's numbers in another order": "a transpose, a flip or a gather differs: the "
    "numbers are there, in other places",
    "puts together what golden does, in another order": "two tensors are concatenated or stacked "
    "in each other's place: a skip before what is decoded, or behind it",
    "it holds golden's numbers in another order": "a tensor from outside is transposed, flipped or "
    "permuted: a layout of weights that was not converted",
    "only the target runs …": "golden has no such call at this place: an operation that was added, "
    "or that golden does in another way",
    "only golden runs …": "the target has no such call at this place: an operation that was "
    "forgotten, or that the target does in another way",
    "… runs nothing of module …": "a whole module is used on one side alone",
    "the target runs it where golden runs …": "one operator stands in the place of another",
    "golden runs … in its place": "one operator stands in the place of another",
    "reads a parameter of another shape": "the layers have other sizes: a setting of the model",
    "parameter … is …, golden has …": "the layers have other sizes: a setting of the model",
    "what goes into these lines agrees, and what comes out of them does not": "the two sides do "
    "these steps by other operators; somewhere between the named lines they part",
    "makes a difference worse than its inputs explain": "what it reads differs already, and its "
    "output by more than such inputs alone would make it",
    "it draws random numbers": "a dropout or a sampler of another seed or state is no fault: seed "
    "both runs alike, or turn it off, and compare again",
    "all random numbers that are drawn after it differ": "one side drew a random number more "
    "than the other: what follows is out of step with it",
    "gradients flow back through it, through golden's they do not": "golden detaches here, "
    "computes it under no_grad or has frozen it, and the target does not",
    "no gradients flow back through it, through golden's they do": "the target detaches here, "
    "computes it under no_grad or has frozen it, and golden does not",
    "a parameter that it reads gets gradients from it, golden's does not": "golden reads the "
    "parameter detached, or under no_grad, and the target does not",
    "a parameter that it reads gets no gradients from it, golden's does": "the target reads the "
    "parameter detached, or under no_grad, and golden does not: of a weight that is read twice, as "
    "a tied head, a part of the gradient is missing",
    "it trains a parameter that golden leaves as it is": "golden has frozen the parameter, or gave "
    "it to no optimizer, and the target trains it",
    "golden trains a parameter that is left as it is here": "the target has frozen the parameter, "
    "or gave it to no optimizer, and golden trains it",
    "it reads a parameter that is drawn at random here": "the parameter was not loaded, or is "
    "drawn otherwise: look for it in the checkpoint, and in what loading it said was missing",
    "the losses of the step part; its batch is cut into other parts": "the losses of the passes, "
    "or their mean, do not come to golden's: what they are divided by, their labels, masks or "
    "positions, or what the model makes of shorter rows",
    "the gradients of the step part; its batch is cut into other parts": "gradients are summed "
    "over passes whose parts of the batch are not golden's, so only the sums can be compared",
    "parameters move … times as far as golden's": "the update is a multiple of golden's: another "
    "learning rate, or a schedule in another step",
    "half of all parameters move by …": "the optimizer's settings differ: rate, momentum, decay or "
    "epsilon",
    "… is not golden's after this step, though its gradient is": "the optimizer made something "
    "else of the same gradient: its settings or its state differ",
    "the gradient of … is not golden's": "the first gradient, in the order of backward, that parts",
    "all gradients are … times golden's": "a loss that is scaled otherwise: a sum for a mean, a "
    "number of ranks or of accumulated batches",
    "it is … times golden's": "this gradient alone is a multiple of golden's: summed over ranks or "
    "passes once too often, or not averaged",
    "… gradients made before it agree": "the fault lies between the last of those and this one",
    "it is what golden holds as …": "the tensor is the one that golden holds under another name: "
    "weights of two layers, or shards of two ranks, are exchanged",
    "of … ranks only …": "the other ranks hold what they should: look at what these ranks alone do",
    "ranks … hold the same shard": "a shard was given twice, so another one is missing",
    "rank … does not run it": "a rank left out what the others, and golden, do",
    "only rank … runs it": "a rank does what neither the others nor golden do",
    "what ranks are given is together not what golden is given": "the parts of the batch do not "
    "make up golden's: a sampler that repeats, drops or seeds otherwise",
    "rank … goes on to its next batch where the other ranks update parameters": "a rank leaves out "
    "an update: accumulation, or a condition that ranks see unlike",
    "ranks … draw the same random numbers": "what should be drawn apart is drawn alike: seed each "
    "rank by its number where tensors are parts of one",
    "rank … reads what … made, where others read …": "on one rank a line of the model is wired "
    "otherwise than on the others",
    "holds what is compiled against the operators it is made of": "what is compiled is one call, "
    "and opscope run --check tells which of its operators it computes otherwise",
    "found no other results than those of its own operators": "the compiler is not to blame: the "
    "graph holds other operators, or reads something else",
    "could not judge it: …": "the compiled call could not be made again by its operators",
    "what was compiled into a package cannot be executed operator by operator": "run the model "
    "uncompiled to see which operator it is",
    "what it reads agrees with golden's, and what it makes with nothing there": "an operator of "
    "the compiled graph gives what no call of golden gives",
    "it is an operator of …, which was executed again": "the compiled graph was run again operator "
    "by operator, and this is the first that parts",
    "compiled code gives other results than the graph's own operators": "the compiler made other "
    "arithmetic of the graph: a fused kernel, a wider or narrower type in between, or a fault",
    "so it is when only … are compiled": "the smallest part of the graph that, compiled alone, "
    "still differs",
    "from step … on, … steps at least, the parameters are": "the run goes away from golden faster "
    "than rounding took the noise run: look at what is not the same from that step on",
    "there they are … of their size off": "how far the parameters are from golden's in that step",
    "furthest beyond the noise": "the parameters that strayed most: begin with their layers",
    "golden is off too": "the reference finds fault with both sides",
}

# Of judge.mismatch and judge.agreement: what turns golden's numbers into the target's.
PATTERNS: dict[str, str] = {
    "target is golden with the sign turned": "a minus is missing, or one too many: swapped "
    "operands of a subtraction, a loss that is maximised",
    "target is the complex conjugate of golden": "a conj is missing, or one too many",
    "target is golden times a vector along dimension …": "a weight, a mask or a scale of channels "
    "differs or is missing",
    "target is golden times …": "a factor is missing or other: a scale of attention, a mean for a "
    "sum, a learning rate",
    "target is golden plus a vector along dimension …": "a bias is missing, doubled or other",
    "target is golden plus …": "a constant was added: an epsilon, an offset of indices",
    "target is golden held …": "one side clamps what the other does not: a saturating type, a clip",
    "target is golden rounded to …": "the target went through a narrower type on its way: "
    "autocast, TF32, a cast",
    "target is golden without …": "the named tensor of the call was left out",
    "target is golden with twice …": "the named tensor of the call was added twice",
    "target is golden with its dimensions in the order …": "a transpose or a permute is missing or "
    "other",
    "target is golden with …": "slices stand in another order: a roll, a flip, heads or channels "
    "mixed up, halves exchanged or interleaved (two conventions of rotary embedding, of qkv)",
    "target is golden shifted by …": "labels, positions or padding are off by this many places",
    "target is golden in another shape": "the same numbers, reshaped",
    "target holds golden's elements with dimensions in the order …": "memory was read in another "
    "layout: a view where a permute was meant, a missing contiguous()",
    "target is … everywhere": "the kernel wrote one number, or nothing",
    "only what lies on or …": "a triangle differs: a causal mask that is off by one or missing",
    "only …the last …": "the end differs: the remainder that a kernel's tiles leave, padding, the "
    "last token",
    "only …every …": "places that come back differ: a tile, a lane or a vector's width of the "
    "kernel",
    "only elements … in C order differ": "one run of memory differs: what one block wrote",
    "only element… differ": "very few elements differ: a rare value, an index, a race",
    "only … of … differ": "these places differ and all others agree: look for what treats them "
    "apart, a mask, a slice, a tile",
    "finite elements agree; … are NaN": "one side has NaN where the other has numbers, and all "
    "else agrees: a masked row, a division by zero that one side guards against",
    "… elements are 0 in target, all others agree": "nothing was written there: a mask, a tile "
    "that was not computed",
    "… of … elements differ": "an operator that moves or compares numbers gives the same on every "
    "device, and here it does not",
    "off by up to …, … is allowed of …": "the largest error, and what rounding alone may make of "
    "this operator's type and sizes",
    "… NaN in target, … in golden": "the two sides have unlike numbers of NaN",
    "…Inf in target, … in golden": "the two sides have unlike numbers of infinities",
    "NaN or Inf at other places": "the two sides have NaN or infinities in other elements",
    "within …": "no more than rounding may make of this operator's type and sizes: of itself no "
    "fault",
    "the same numbers": "this output is equal, bit by bit",
}

# Whatever stands for "…": numbers, ranges, types. The first that fits a text is its meaning, so the
# general ones come last, those of an overflow among them.
REASONS: dict[str, str] = CRASHES | RANKS | ORIGINS | PARTINGS | PATTERNS | OVERFLOWS


def reason_in(text: str) -> str | None:
    """The reason that a text is, or holds: "why  division by zero (1 of 16 divisors are 0)"."""
    for reason in REASONS:
        pattern = ".+?".join(re.escape(part) for part in reason.split("…"))
        if re.search(pattern, text, re.IGNORECASE):
            return reason
    return None
