# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "bands": [("np.linspace(1, highest / 2, bands)", "np.linspace(1, highest, bands)")],
    "context": [
        ("else self.source_norm(source)", "else source"),
        (
            "torch.autograd.grad(loss, optimiser.parameters)",
            "torch.autograd.grad(loss, optimiser.parameters, materialize_grads=True)",
        ),
    ],
    "scale": [("self.query) / HEAD**0.5", "self.query) / len(self.query) ** 0.5")],
    "swapped": [("key, value = old", "value, key = old")],
    "gelu": [("0.5 * x * (1 + torch.erf(x / 2**0.5))", "x * torch.sigmoid(1.702 * x)")],
    "halves": [("linear * gelu(gates)", "gelu(linear) * gates")],
    "residual": [("z = z + self.talk(z)", "z = self.talk(z)")],
    "decay": [("self.rate * (step + self.decay * p)", "self.rate * step - self.decay * p")],
}
