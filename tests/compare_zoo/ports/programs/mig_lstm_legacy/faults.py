# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    # the gates are not put in the order of the cells
    "candidate": [("return torch.cat((i, g, f, o))", "return tensor")],
    # every window begins from nothing
    "carried": [("state.detach() for state", "torch.zeros_like(state) for state")],
    # equal at first, then each goes its own way
    "tied": [
        (
            "self.softmax_w = self.vectors",
            "self.softmax_w = torch.nn.Parameter(torch.empty(WORDS, N))",
        ),
        (
            'net.softmax_b.copy_(variables["decoder.bias"])',
            'net.softmax_b.copy_(variables["decoder.bias"])\n    net.softmax_w.copy_(variables["decoder.weight"])',
        ),
    ],
    # the text is dealt out to the rows word by word
    "columns": [(".reshape(ROWS, length)", ".reshape(length, ROWS).T")],
    # every value is held in bounds, not the length of all
    "clipped": [
        (
            "slopes = torch.autograd.grad(loss, learned)",
            "slopes = [s.clamp(-0.25, 0.25) for s in torch.autograd.grad(loss, learned)]",
        ),
        ("shorter = 0.25 / max(length.item() + 1e-6, 0.25)", "shorter = 1.0"),
    ],
}
