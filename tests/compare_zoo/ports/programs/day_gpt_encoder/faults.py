# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "mask": [(".triu(1)", ".triu(2)")],
    "gelu": [("F.gelu(self.fc1(y))", 'F.gelu(self.fc1(y), approximate="tanh")')],
    "residual": [("return x + self.fc2", "return y + self.fc2")],
    "heads": [("out.transpose(1, 2).reshape(B, T, DIM)", "out.reshape(B, T, DIM)")],
    "tied": [("self.wte.weight)  #", "self.wte.weight.detach())  #")],
    "values": [('attn.v_proj.{kind}"] = v', 'attn.v_proj.{kind}"] = k')],
}
