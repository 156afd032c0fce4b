# SPDX-License-Identifier: Apache-2.0
"""Faults of the batched netlist model."""
FAULTS = {
    "normalise": [("e / scatter_sum(e, index, size)[index]", "e / e.sum(0)")],
    "direction": [("dense(sd, pre + \"source\", x)[g.driver]",
                   "dense(sd, pre + \"source\", x)[g.sink]"),
                  ("dense(sd, pre + \"target\", x)[g.sink]",
                   "dense(sd, pre + \"target\", x)[g.driver]")],
    "slope": [("0.2 * z.clamp(max=0)", "0.01 * z.clamp(max=0)")],
    "fanin": [("fan = torch.bincount(g.sink, minlength=n)",
               "fan = torch.bincount(g.driver, minlength=n)")],
    "readout": [("scatter_sum(y, g.owner, g.count) / cells",
                 "scatter_sum(y, g.owner, g.count) / cells.max()")],
}
