# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "slopes": [("torch.arange(1, heads + 1)", "torch.arange(0, heads)")],
    "sign": [("place.view(1, -1) - place.view(-1, 1)", "place.view(-1, 1) - place.view(1, -1)")],
    "mask": [(".triu(1)", ".triu(2)")],
    "scale": [("attn_mask=mask", "attn_mask=mask, scale=1.0")],
    "gelu": [("F.gelu(self.up(self.n2(x)))", 'F.gelu(self.up(self.n2(x)), approximate="tanh")')],
    "layout": [
        (
            'q, k, v = old[f"attend.{i}.qkv.{kind}"].chunk(3)',
            (
                "q, k, v = (\n                part.flatten(0, 1)\n"
                '                for part in old[f"attend.{i}.qkv.{kind}"]\n'
                "                .unflatten(0, (HEADS, 3, -1))\n                .unbind(1)\n            )"
            ),
        )
    ],
}
