# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "heads": [
        ("weight.view(H, 3, E, D).unbind(1)", "weight.view(3, H, E, D).unbind(0)"),
        ("bias.view(H, 3, E).unbind(1)", "bias.view(3, H, E).unbind(0)"),
    ],
    "rotary": [
        (
            "torch.complex(x[..., :half], x[..., half:ROTARY])",
            "torch.view_as_complex(x[..., :ROTARY].unflatten(-1, (half, 2)).contiguous())",
        ),
        (
            "torch.cat((z.real, z.imag, rest), dim=-1)",
            "torch.cat((torch.view_as_real(z).flatten(-2), rest), dim=-1)",
        ),
    ],
    "residual": [("x = x + a + mlp(p, n, x)", "x = x + a + mlp(p, n, x + a)")],
    "warmup": [("min(1.0, step / 3)", "min(1.0, (step - 1) / 3)")],
    "decay": [
        ('if not name.endswith(".b") and ".ln" not in name and name != "final.w":', "if lr > 0:")
    ],
}
