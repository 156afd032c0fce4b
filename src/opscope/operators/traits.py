# SPDX-License-Identifier: Apache-2.0
"""The columns of the catalogue: what can be known of an operator. docs/operators.md says what each
decides, and where.
"""

from __future__ import annotations

import msgspec


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an operator; a trait that is not set is not known to hold. Slots are first
    components ("0"), comma between.
    """

    # What becomes of elements.
    view: bool = False  # the outputs are the same elements, or some of them, under another shape
    # every element of an output is one of an input (or a scalar), unchanged; nothing is computed
    moves: bool = False
    # the elements are the input's in their order, row by row; a copy's only under the same shape
    in_order: bool = False
    pointwise: bool = False  # an element of the output depends on those at its own place only
    weighed: bool = False  # reads parameters: an input of another shape is another batch
    # a sum of products, which is rounded or overflows while it is accumulated
    contraction: bool = False
    cast: bool = False  # one element type in, another out
    bitwise: bool = False  # takes numbers for their bits
    modulo: bool = False  # takes a number modulo another
    negates: bool = False  # of the least integer the result has no place in the type
    running: bool = False  # sums, or products, of all elements up to each
    flat: bool = False  # no derivative goes on, though elements do
    stops: bool = False  # an activation that gives 0 for what it does not let through
    # what is cut off at the largest number of a narrow type rather than made infinite, where a
    # device saturates
    saturates: bool = False
    one_sign: bool = False  # a sum of terms of one sign: no smaller than any of them
    # Where elements come from.
    allocates: bool = False  # outputs hold what the memory held before
    random: bool = False  # draws random numbers
    # values come in from outside of the recorded program: shared memory, a mapped file
    brings: bool = False
    places: bool = False  # a scalar argument can become an element of the output as it stands
    # What is done about values that are not finite.
    guards: bool = False  # is run on such values knowingly, or only chooses among elements
    picks: bool = False  # some elements are read, by their places, the others left out
    masks: bool = False  # puts a constant where place or another tensor choose elements
    predicate: bool = False  # asks what a value is: the answer is not what became of it
    leaves: bool = False  # the value leaves the tensors for the program's own variables
    # to be read by it says nothing: only the shape is read, or it is written over
    silent: bool = False
    order: bool = False  # an infinite scalar is the order of a norm, not a value
    # an infinity goes in and one of the other sign comes out, without an overflow
    flips: bool = False
    # Arguments by slot.
    # inputs whose rows (indices of the first dimension) become rows of the first output each by
    # itself, where they have as many; "all" of them
    rows: str = ""
    scratch: str = ""  # outputs for the backward kernel alone: padded, or in part never written
    overwrites: str = ""  # the argument whose previous content cannot show in what is left in it
    writes: str = ""  # arguments that the call writes to, by its schema
    # how the magnitude of what is written is bounded by the inputs': a rule of kernels.bounds
    bound: str = ""
    # How results err, and how errors are carried.
    typed: bool = False  # speaks of its element type itself: a wider one gives something else
    watched: bool = False  # integers wrap in silence in it: judged by their values
    labelled: bool = False  # reads one element of each row, the one that a label names
    sums: bool = False  # on absolute values it gives the sum of its terms' magnitudes
    # which of several equal elements it names, or gives a gradient, is its own choice
    chooses: bool = False
    commutes: bool = False  # its operands may stand in any order
    error: str = ""  # how an error of its inputs is carried to its outputs: a kind of compare
    loss: bool = False  # computes a loss, not a gradient of one
    tolerance: str = ""  # kind of rule of judge.tolerance
    # How it is called again.
    # has no result of its own, changes what a tensor is, or is gone before it could be made again
    once: bool = False
    keyless: bool = False  # no keyword argument but `out` changes what it computes
    public: bool = False  # torch has a function of its word, with its arguments
    # What it is beside other calls.
    idle: bool = False  # nothing is computed: left out or called once more, no result differs
    linear_update: bool = False  # a part of optimizers that only add and multiply
    # Of calls that exchange values with other ranks.
    collective: bool = False  # is such a call, of a graph: torch's are told by their namespace
    # after it every rank of the group holds the same; after others that may differ by rank
    alike: bool = False
    # what it is called with must have the same shapes on every rank of the group
    shaped: bool = False
    alone: bool = False  # is not called by every rank of the group
    # Between frameworks.
    dropped: bool = False  # what it gives is told by no other call: left out of the alignment
    handed_on: bool = False  # gives its input, perhaps shaped otherwise
    by_products: bool = False  # outputs after the first are indices, masks, statistics, workspaces
    generic: bool = False  # a building block: the word alone says nothing of what a call is for
    biased: bool = False  # may carry a bias, or leave it to an addition behind
    kin: str = ""  # the word for what operators of any framework compute, where it is not their own
    same: str = ""  # torch's word for the same operator


# What a text of these may be; of the others, slots or words.
CHOICES = {
    "tolerance": frozenset(
        {
            "exact",
            "cast",
            "arithmetic",
            "elementary",
            "composed",
            "sum",
            "product",
            "loss",
            "softmax",
            "norm",
            "attention",
            "optimizer",
            "transform",
            "random",
            "basis",
            "memory",
            "conditioning",
        }
    ),
    "error": frozenset(
        {"product", "sum", "mean", "linear", "smooth", "delicate", "steep", "move", "norm"}
    ),
    "bound": frozenset(
        {"kept", "moments", "overwritten", "product", "quotient", "square_root", "sum"}
    ),
}
FLAGS = frozenset(name for name, kind in Traits.__annotations__.items() if kind == "bool")
TEXTS = frozenset(Traits.__struct_fields__) - FLAGS
