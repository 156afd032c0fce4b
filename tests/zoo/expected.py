# SPDX-License-Identifier: Apache-2.0
"""What each program of the zoo is known to do, worked out by hand and with a dispatch mode that
knows nothing of opscope.

The guilty line of a program carries the comment `# <- origin`; where a second fault is expected its
line carries another word.
A program without origins is healthy: any overflow-origin in it is a false accusation.
"""

from __future__ import annotations

import msgspec


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """One finding: op holds globs, any of which fits; reached None means either; module "" is the
    root or outside of modules.
    """

    op: tuple[str, ...]
    step: int | None
    phase: str = "forward"
    module: str = ""
    marker: str = "origin"
    rank: int = 0
    reached: bool | None = True
    arrived: bool = False
    status: str | None = None
    confidence: str | None = None


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One program: its findings in order (none: clean), further ones that may stand there, how it
    is started and how it ends.
    """

    name: str
    origins: tuple[Origin, ...] = ()
    also: tuple[Origin, ...] = ()
    ranks: int = 1
    exit_code: int = 0
    compiles: bool = False
    guarded: bool = False


def faulty(
    name: str,
    *origins: Origin,
    also: tuple[Origin, ...] = (),
    ranks: int = 1,
    exit_code: int = 0,
    compiles: bool = False,
) -> Program:
    """A program with findings."""
    return Program(
        name=name, origins=origins, also=also, ranks=ranks, exit_code=exit_code, compiles=compiles
    )


def guarded(name: str, *origins: Origin) -> Program:
    """A program that removes on purpose what it makes: clean, and its origins are told with
    --show-hidden.
    """
    return Program(name=name, origins=origins, guarded=True)


def healthy(name: str, *, ranks: int = 1, exit_code: int = 0, compiles: bool = False) -> Program:
    """A program that must be clean."""
    return Program(name=name, ranks=ranks, exit_code=exit_code, compiles=compiles)


def origin(op: str, step: int | None, **other: object) -> Origin:
    """An origin whose op is given as `aten::` names separated by bars."""
    return msgspec.convert(
        {"op": tuple(f"aten::{part}" for part in op.split("|")), "step": step, **other}, Origin
    )


FAULTY = (
    faulty("attention_scores_fp16", origin("bmm.*", 3, module="layers.0", status="0x400")),
    faulty(
        "log_of_softmax",
        origin("log.default", 3),
        also=(origin("div.Tensor", 3, phase="backward"),),
    ),
    faulty("entropy_bonus", origin("log.default", 3)),
    faulty("normalize_dead_unit", origin("div.Tensor", 2)),
    faulty("padding_masks_a_whole_row", origin("_softmax.default|softmax.int", 3, module="pool")),
    faulty("cast_to_half", origin("_to_copy.default", 2, status="0x100")),
    faulty("sqrt_of_zero_distance", origin("div.Tensor", 2, phase="backward")),
    faulty("sqrt_under_where", origin("div.Tensor", 2, phase="backward")),
    guarded("sqrt_of_where", origin("div.Tensor", 0, phase="backward", reached=False)),
    faulty("hash_embedding_int32", origin("mul.Tensor", 2, status="0x10", reached=None)),
    faulty("log_in_place", origin("log_.default", 1)),
    faulty("adagrad_state_fp16", origin("addcmul_.default", 2, phase="optimizer", reached=False)),
    faulty("adam_eps_fp16", origin("addcdiv_.default", 0, phase="optimizer")),
    faulty("vae_exp_logvar", origin("exp.default", 3, module="encoder", status="0x20")),
    faulty("exp_then_inverse", origin("exp.default", 2, status="0x20", reached=False)),
    faulty("gamma_of_negative", origin("pow.Tensor_Scalar", 1)),
    faulty("cross_entropy_all_ignored", origin("nll_loss_forward.default", 2)),
    faulty(
        "rmsnorm_fp16",
        origin("pow.Tensor_Scalar", 0, module="2.norm", status="0x20", reached=False),
    ),
    faulty("variance_of_one_sample", origin("var.correction", 3, module="1")),
    faulty(
        "convolution_fp16",
        origin("convolution.default|mkldnn_convolution.default", 2, module="body", status="0x400"),
    ),
    faulty("relu_rnn_explodes", origin("addmm.default|add_.Tensor|add.Tensor", 2, module="cell")),
    faulty("nan_in_checkpoint", origin("lift_fresh.default|copy_.default", 0, arrived=True)),
    faulty("nan_in_data", origin("lift_fresh.default|addmm.default", 2, arrived=True, module="")),
    guarded(
        "missing_values_replaced",
        origin("lift_fresh.default|nan_to_num.default", 2, arrived=True, reached=False),
    ),
    faulty("custom_function_backward", origin("div.Tensor", 2, phase="backward")),
    faulty("inverse_of_tiny", origin("mul.Tensor", 0, phase="backward")),
    faulty("acos_of_one", origin("rsqrt.default", 2, phase="backward")),
    faulty("static_loss_scale", origin("_to_copy.default", 0, phase="backward", status="0x100")),
    faulty("scaler_keeps_falling", origin("mul.Tensor", 0, status="0x20")),
    faulty("checkpointed_block", origin("exp.default", 2, module="blocks.1", status="0x20")),
    faulty(
        "attention_on_timestamps",
        origin(
            "_scaled_dot_product_flash_attention_for_cpu*", 1, phase="backward", module="attention"
        ),
    ),
    faulty("gan_log_of_zero", origin("log.default", 2)),
    faulty("lbfgs_leaves_domain", origin("log.default", 0)),
    faulty("features_in_a_thread", origin("log.default", 2)),
    faulty("groupnorm_without_eps", origin("native_group_norm.default", 2, module="norm")),
    faulty("masked_mean_of_nothing", origin("div.Tensor", 1, module="layers.0")),
    faulty("masked_action_entropy", origin("mul.Tensor", 0)),
    faulty("negative_to_uint8", origin("_to_copy.default", 1, status="0x80", reached=None)),
    # Its gradient is cast to float8 too, and saturates as well.
    faulty(
        "float8_without_scale",
        origin("_to_copy.default", 2, module="0", reached=None, confidence="likely"),
        also=(
            origin(
                "_to_copy.default",
                None,
                phase="backward",
                module="0",
                reached=None,
                confidence="likely",
            ),
        ),
    ),
    faulty("half_sum_of_squares", origin("sum.default", 2)),
    faulty("discount_cumprod", origin("cumprod.default", 2)),
    faulty("sampling_at_temperature_zero", origin("div.Tensor", 8, reached=None), exit_code=1),
    faulty(
        "weight_norm_of_zeros",
        origin("_weight_norm_interface.default", 0, module="2.parametrizations.weight.0"),
    ),
    faulty("ema_bias_correction", origin("div.Tensor", 0)),
    faulty("learning_rate_too_high", origin("pow.Tensor_Scalar", 5)),
    faulty(
        "two_causes",
        origin("log.default", 2),
        origin("exp.default", 0, marker="second", reached=False),
    ),
    faulty(
        "lstm_unscaled_volume",
        origin("mm.default|addmm.default", 2, module="lstm", status="0x400", reached=False),
    ),
    faulty(
        "dataloader_workers_nan", origin("set_.*|addmm.default", None, arrived=True)
    ),  # batches arrive early, in any order
    faulty("ddp_one_rank_bad", origin("log.default", 2, rank=1, module="module"), ranks=2),
    faulty("compiled_block", origin("log.default", 2, confidence="proven"), compiles=True),
)

HEALTHY = (
    healthy("healthy_convnet"),
    healthy("healthy_causal_transformer"),
    healthy("healthy_encoder_padding"),
    healthy("healthy_half_mask"),
    healthy("healthy_scaler_first_skips"),
    healthy("healthy_log_guarded"),
    healthy("healthy_guarded_metrics"),
    healthy("healthy_bf16_autocast"),
    healthy("healthy_clipping"),
    healthy("healthy_empty_buffers"),
    healthy("healthy_beam_search"),
    healthy("healthy_packed_lstm"),
    healthy("healthy_sparse_embedding"),
    healthy("healthy_checkpointing"),
    healthy("healthy_wgan_gp"),
    healthy("healthy_lbfgs"),
    healthy("healthy_threads"),
    healthy("healthy_sdpa_masks"),
    healthy("healthy_hmm_forward"),
    healthy("healthy_masked_actions"),
    healthy("healthy_exit_in_loop", exit_code=7),
    healthy("healthy_groupnorm_unet"),
    healthy("healthy_hash_int64"),
    healthy("healthy_straight_through"),
    healthy("healthy_dataloader_workers"),
    healthy("healthy_ddp", ranks=2),
    healthy("healthy_local_sgd", ranks=3),
    healthy("healthy_compiled", compiles=True),
)

PROGRAMS = FAULTY + HEALTHY
