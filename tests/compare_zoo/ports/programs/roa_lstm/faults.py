# SPDX-License-Identifier: Apache-2.0
"""Five mistakes for the LSTM port."""

FAULTS = {
    "gate_order": [("i, f, g, o = z.chunk(4, dim=1)", "i, f, o, g = z.chunk(4, dim=1)")],
    "pad_advances": [
        ("kept = CellState(*(torch.where(alive, a, b) for a, b in zip(after, before)))", "kept = after"),
    ],
    "state_reset": [("carry = [CellState(s.c.detach(), s.h.detach()) for s in last]", "carry = start")],
    "bias_frozen": [
        ("self.bias_h = nn.Parameter(torch.empty(4 * hidden))", 'self.register_buffer("bias_h", torch.empty(4 * hidden))')
    ],
    "rms_alpha": [("lr=4e-3, rho=0.9, eps=1e-6", "lr=4e-3, rho=0.99, eps=1e-6")],
}
