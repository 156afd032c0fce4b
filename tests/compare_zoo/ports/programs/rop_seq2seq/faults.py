# SPDX-License-Identifier: Apache-2.0
"""Mistakes people make when they write a packed GRU encoder-decoder again with their own cell."""

FAULTS = {
    # the reset gate multiplies the state before the recurrent product, as in the first GRU paper
    "reset_before_matmul": [("r * (h @ self.un + self.cn)", "(r * h) @ self.un + self.cn")],
    # the final state is taken after the padding
    "state_past_end": [("h = torch.where(live[t][:, None], fresh, h)", "h = fresh")],
    # padding takes part in the attention
    "attention_to_padding": [('torch.zeros(scores.shape).masked_fill(~live, float("-inf"))',
                              "torch.zeros(scores.shape)")],
    # precomputed keys cut off from the encoder
    "keys_detached": [("keys = memory @ self.wk.T", "keys = memory.detach() @ self.wk.T")],
    # divided by the sentences of the batch, not by the words
    "mean_per_sentence": [("/ scored.sum()", "/ scored.shape[1]")],
}
