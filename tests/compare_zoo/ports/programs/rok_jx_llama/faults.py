# SPDX-License-Identifier: Apache-2.0
"""Mistakes of the JAX migration of the Llama-like decoder."""

FRAMEWORK = "jax"

FAULTS = {
    "rms_eps": [("EPS = 1e-5", "EPS = 1e-6")],
    "rope_interleaved": [
        ("a, b = x[..., :dim // 2], x[..., dim // 2:]", "a, b = x[..., 0::2], x[..., 1::2]"),
        ("return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)",
         "return jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)")],
    "kv_heads_tiled": [
        ("k = jnp.repeat(k, HEADS // KV_HEADS, axis=2)", "k = jnp.tile(k, (1, 1, HEADS // KV_HEADS, 1))"),
        ("v = jnp.repeat(v, HEADS // KV_HEADS, axis=2)", "v = jnp.tile(v, (1, 1, HEADS // KV_HEADS, 1))")],
    "mean_over_prompt": [("/ weight.sum()", "/ weight.size")],
    "decay_in_gradient": [
        ("    count += 1\n",
         "    count += 1\n    grads = jax.tree.map(lambda g, p: g + decay * p, grads, params)  # <- decay_in_gradient\n"),
        ("(jnp.sqrt(n_hat) + eps) + decay * p)", "(jnp.sqrt(n_hat) + eps))")],
}
