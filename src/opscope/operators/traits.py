# SPDX-License-Identifier: Apache-2.0
"""The columns of the catalogue: what can be known of an operator. docs/operators.md says what each decides, and where."""

from __future__ import annotations

import msgspec


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an operator; a trait that is not set is not known to hold. Slots are first components ("0"), comma between."""

    # What becomes of elements.
    view: bool = False  # the outputs are the same elements, or some of them, under another shape
    moves: bool = False  # every element of an output is one of an input (or a scalar), unchanged; nothing is computed
    pointwise: bool = False  # an element of the output depends on those at its own place only
    contraction: bool = False  # a sum of products, which is rounded or overflows while it is accumulated
    cast: bool = False  # one element type in, another out
    # Where elements come from.
    allocates: bool = False  # outputs hold what the memory held before
    random: bool = False  # draws random numbers
    brings: bool = False  # values come in from outside of the recorded program: shared memory, a mapped file
    places: bool = False  # a scalar argument can become an element of the output as it stands
    # What is done about values that are not finite.
    guards: bool = False  # is run on such values knowingly, or only chooses among elements
    masks: bool = False  # puts a constant where elements are chosen by their place
    predicate: bool = False  # asks what a value is: the answer is not what became of it
    leaves: bool = False  # the value leaves the tensors for the program's own variables
    silent: bool = False  # to be read by it says nothing: only the shape is read, or it is written over
    order: bool = False  # an infinite scalar is the order of a norm, not a value
    flips: bool = False  # an infinity goes in and one of the other sign comes out, without an overflow
    # Arguments by slot.
    scratch: str = ""  # outputs for the backward kernel alone: padded, or in part never written
    overwrites: str = ""  # the argument whose previous content cannot show in what is left in it
    # How results err.
    tolerance: str = ""  # kind of rule of judge.tolerance
    # Across worlds.
    same: str = ""  # torch's word for the same operator


FLAGS = frozenset(name for name, kind in Traits.__annotations__.items() if kind == "bool")
TEXTS = frozenset(Traits.__struct_fields__) - FLAGS
