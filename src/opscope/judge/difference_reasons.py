# SPDX-License-Identifier: Apache-2.0
"""What the reasons why two runs part, and the words for what a difference looks like, mean, and
what is usually done about them.
"""

from __future__ import annotations

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
    "gradients flow back through it, through golden's they do not": "golden detaches here, or "
    "computes it under no_grad, and the target does not",
    "no gradients flow back through it, through golden's they do": "the target detaches here, "
    "computes it under no_grad or has frozen it, and golden does not",
    "it trains a parameter that golden leaves as it is": "golden has frozen the parameter, or gave "
    "it to no optimizer, and the target trains it",
    "golden trains a parameter that is left as it is here": "the target has frozen the parameter, "
    "or gave it to no optimizer, and golden trains it",
    "it reads a parameter that is drawn at random here": "the parameter was not loaded, or is "
    "drawn otherwise: look for it in the checkpoint, and in what loading it said was missing",
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
