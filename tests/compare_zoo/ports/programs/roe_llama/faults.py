# SPDX-License-Identifier: Apache-2.0
"""Five porting mistakes for the compiled Llama."""

FAULTS = {
    # the rows are not re-ordered for the rotation by pairs
    "rope_layout": [("return w.view(-1, 2, a.head // 2, a.dim).transpose(1, 2).reshape(w.shape)", "return w")],
    # the key heads are tiled, not each repeated
    "kv_repeat": [("t.repeat_interleave(self.a.n_heads // self.a.n_kv, dim=2)", "t.repeat(1, 1, self.a.n_heads // self.a.n_kv, 1)")],
    # a document sees the documents packed before it
    "packing_mask": [("visible = (self.causal & same).unsqueeze(1)", "visible = self.causal[None, None]")],
    # the mean of the means of the parts
    "accumulation_mean": [("[keep].sum() / count", "[keep].mean() / len(micros)")],
    # the gradients of the earlier part are thrown away before the step
    "zero_grad_in_loop": [("        part.backward()  # <- zero_grad_in_loop\n",
                           "        optimizer.zero_grad(set_to_none=True)  # <- zero_grad_in_loop\n        part.backward()  # <- zero_grad_in_loop\n"),
                          ("    optimizer.step()\n    optimizer.zero_grad(set_to_none=True)  # <- zero_grad_in_loop\n", "    optimizer.step()\n")],
}
