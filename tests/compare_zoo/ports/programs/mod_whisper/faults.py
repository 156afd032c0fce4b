# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "gelu": [("x = F.gelu(self.conv2(x))", "x = self.conv2(x)")],
    "post": [("return self.ln_post(x)", "return x")],
    "start": [("START = 3", "START = 1")],
    "counted": [(".sum() / everything", ".mean() / 2")],
    "decoupled": [
        ("grad = p.grad + self.penalty * p  #", "grad = p.grad  #"),
        ("p.sub_(self.lr", "p.mul_(1 - self.lr * self.penalty).sub_(self.lr"),
    ],
    "sinusoids": [
        (
            'self.register_buffer("positional_embedding", sinusoids(n_ctx, n_state))',
            "self.positional_embedding = nn.Parameter(sinusoids(n_ctx, n_state))",
        )
    ],
}
