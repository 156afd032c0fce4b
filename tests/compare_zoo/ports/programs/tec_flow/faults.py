# SPDX-License-Identifier: Apache-2.0
"""Faults for the optical-flow pair."""

FAULTS = {
    "window_order": [("bpqiw,bpqjw->bpqji", "bpqiw,bpqjw->bpqij")],
    "coordinate_stop": [("held = flow.detach()", "held = flow")],
    "flow_upscale": [("rows, cols, flow * 2)", "rows, cols, flow)")],
    "sequence_gamma": [
        ("CFG.decay ** torch.arange(CFG.rounds).flip(0)", "CFG.decay ** torch.arange(CFG.rounds)")
    ],
    "infinity_norm": [
        ("torch.maximum(0.9 * bound[k], g.abs() + 1e-3)", "0.9 * bound[k] + 0.1 * (g.abs() + 1e-3)")
    ],
}
