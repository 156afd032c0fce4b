# SPDX-License-Identifier: Apache-2.0
"""What the reasons of a crash, and of ranks that part, mean, and what is usually done about
them.
"""

from __future__ import annotations

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
