# SPDX-License-Identifier: Apache-2.0
"""Mistakes people make when they port a BERT encoder to stacked functions with fixed shapes."""

FAULTS = {
    # token_type_ids forgotten: everything gets segment 0
    "segments_dropped": [("one_hot(batch.segment, 2)", "one_hot(torch.zeros_like(batch.segment), 2)")],
    # the padding mask broadcast over queries instead of keys
    "mask_on_queries": [("* 1e9)[:, None, None, :]", "* 1e9)[:, None, :, None]")],
    # residual added after the norm
    "norm_before_add": [('x = ln(x + mixed @ p["w_o"][i] + p["b_o"][i], p["ln1"][i])',
                         'x = x + ln(mixed @ p["w_o"][i] + p["b_o"][i], p["ln1"][i])'),
                        ('x = ln(x + inner @ p["w_out"][i] + p["b_out"][i], p["ln2"][i])',
                         'x = x + ln(inner @ p["w_out"][i] + p["b_out"][i], p["ln2"][i])')],
    # averaged over all real tokens instead of the masked ones
    "mean_over_tokens": [("/ batch.weight.sum()", "/ batch.real.sum()")],
    # the decay runs over all steps instead of those after the warmup
    "schedule_span": [("(end - step) / (end - warm)", "(end - step) / end")],
}
