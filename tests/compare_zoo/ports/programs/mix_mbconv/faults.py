# SPDX-License-Identifier: Apache-2.0
FAULTS = {
    "squeeze_act": [("swish(small) @", "small.relu() @")],
    "biased_var": [("dim=(0, 1, 2), correction=0", "dim=(0, 1, 2), correction=1")],
    "same_pad": [("else (0, 1)", "else (1, 0)")],
    "eps_inside": [("(sq[k].sqrt() + 1e-3)", "(sq[k] + 1e-3).sqrt()")],
    "ema_decay": [("average[k].lerp_(w, 0.2)", "average[k].lerp_(w, 0.8)")],
}
