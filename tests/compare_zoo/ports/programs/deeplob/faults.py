# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "slope": [("x, 0.01 * x)", "x, 0.3 * x)")],
    "pad": [("before = (taps - 1) // 2", "before = taps // 2")],
    "pooling": [(".amax(-1)", ".mean(-1)"), (", value=-torch.inf", "")],
    "gates": [("i, f, g, o = z.chunk", "i, f, o, g = z.chunk")],
    "twice": [("torch.log(probabilities)", "torch.log_softmax(probabilities, 1)")],
    "eps": [("epsilon=1.0", "epsilon=1e-7")],
    "zscored": [("/ table.std(0)", "/ table.std()")],
    "horizon": [("price[t + 1 : t + 1 + AHEAD]", "price[t : t + AHEAD]")],
}
