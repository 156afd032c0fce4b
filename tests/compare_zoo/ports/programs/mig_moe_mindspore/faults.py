# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    # the default of mindspore.nn.GELU is the approximation
    "gelu": [
        (
            "0.5 * x * (1 + torch.erf(x / math.sqrt(2.0)))",
            "0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))",
        )
    ],
    "renormed": [("combine = kept / kept.sum(-1, keepdim=True)", "combine = kept")],
    # only the best expert counts for the balance, as in Switch
    "balance": [
        (
            "density = chosen.mean((0, 1))",
            "density = (probs == probs.amax(-1, keepdim=True)).float().mean((0, 1))",
        )
    ],
    "nesterov": [("update = clipped + moments[name] * 0.9", "update = moments[name]")],
    # the warmup begins with nothing
    "warmup": [("0.2 * min(step + 1, 4) / 4", "0.2 * min(step, 4) / 4")],
}
