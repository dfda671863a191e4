"""The families of frontend/checkpoint in numpy, in float64: from config.json's keys and weights by
name to logits. Written from the models' papers and transformers, not from the compiler."""
import math

import numpy as np


def rms_norm(x, gain, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * gain


def layer_norm(x, gain, shift, epsilon):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * gain + shift


def erf(x):
    return np.vectorize(math.erf)(x)


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


ACTIVATIONS = {
    "gelu": lambda x: x / 2 * (1 + erf(x / math.sqrt(2))),
    "gelu_new": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh, "gelu_fast": gelu_tanh,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)), "swish": lambda x: x / (1 + np.exp(-x)),
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
}


def frequencies(rope, dims):
    """Of one rotation: {"rope_type", "rope_theta", ..}."""
    values = rope["rope_theta"] ** (-np.arange(0, dims, 2) / dims)
    if rope["rope_type"] == "linear":
        return values / rope["factor"]
    if rope["rope_type"] == "llama3":
        waves, context = 2 * np.pi / values, rope["original_max_position_embeddings"]
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        kept = np.clip((context / waves - low) / (high - low), 0, 1)
        return kept * values + (1 - kept) * values / rope["factor"]
    return values


def rotate(x, rope, dims):
    """x: [heads, tokens, size]; its first `dims` elements turn, in two halves."""
    if rope is None:
        return x
    angles = np.outer(np.arange(x.shape[1]), frequencies(rope, dims))
    a, b, rest = np.split(x, [dims // 2, dims], axis=-1)
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles),
                           b * np.cos(angles) + a * np.sin(angles), rest], -1)


def attention(q, k, v, scale, window=None, cap=None):
    """[heads, tokens, size], of which k and v may have fewer heads."""
    k, v = (np.repeat(t, q.shape[0] // t.shape[0], axis=0) for t in (k, v))
    scores = q @ k.transpose(0, 2, 1) * scale
    if cap:
        scores = cap * np.tanh(scores / cap)
    distance = np.subtract.outer(np.arange(q.shape[1]), np.arange(q.shape[1]))
    hidden = (distance < 0) | (distance >= (window or np.inf))
    scores = np.where(hidden, -np.inf, scores)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def split(x, heads):
    return x.reshape(len(x), heads, -1).transpose(1, 0, 2)


def join(x):
    return x.transpose(1, 0, 2).reshape(x.shape[1], -1)


class Model:
    """`c` has every key of the family, `w` arrays in float64. `ropes` and `windows`: by layer."""

    def __init__(self, c, w, ropes, windows):
        self.c, self.w, self.ropes, self.windows = c, w, ropes, windows

    def dense(self, x, name):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def logits(self, ids):
        run = {"gpt2": self.gpt2, "gpt_neox": self.neox}.get(self.c["model_type"], self.llama)
        return np.stack([run(row) for row in ids])

    def gpt2(self, ids):
        c, w = self.c, self.w
        act, epsilon = ACTIVATIONS[c["activation_function"]], c["layer_norm_epsilon"]

        def norm(x, name):
            return layer_norm(x, w[name + ".weight"], w[name + ".bias"], epsilon)

        def conv(x, name):
            return x @ w[name + ".weight"] + w[name + ".bias"]

        x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:len(ids)]
        for i in range(c["n_layer"]):
            at = f"transformer.h.{i}."
            q, k, v = (split(t, c["n_head"])
                       for t in np.split(conv(norm(x, at + "ln_1"), at + "attn.c_attn"), 3, -1))
            scale = q.shape[-1] ** -0.5 if c["scale_attn_weights"] else 1
            scale /= i + 1 if c["scale_attn_by_inverse_layer_idx"] else 1
            x = x + conv(join(attention(q, k, v, scale)), at + "attn.c_proj")
            x = x + conv(act(conv(norm(x, at + "ln_2"), at + "mlp.c_fc")), at + "mlp.c_proj")
        head = w["transformer.wte.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
        return norm(x, "transformer.ln_f") @ head.T

    def neox(self, ids):
        c, w = self.c, self.w
        act, heads = ACTIVATIONS[c["hidden_act"]], c["num_attention_heads"]

        def norm(x, name):
            return layer_norm(x, w[name + ".weight"], w[name + ".bias"], c["layer_norm_eps"])

        x = w["gpt_neox.embed_in.weight"][ids]
        for i in range(c["num_hidden_layers"]):
            at = f"gpt_neox.layers.{i}."
            qkv = split(self.dense(norm(x, at + "input_layernorm"),
                                   at + "attention.query_key_value"), heads)
            q, k, v = np.split(qkv, 3, -1)
            rope = self.ropes[i]
            dims = int(q.shape[-1] * rope["partial_rotary_factor"])
            y = attention(rotate(q, rope, dims), rotate(k, rope, dims), v, q.shape[-1] ** -0.5)
            y = self.dense(join(y), at + "attention.dense")
            read = x if c["use_parallel_residual"] else x + y
            hidden = act(self.dense(norm(read, at + "post_attention_layernorm"),
                                    at + "mlp.dense_h_to_4h"))
            x = x + y + self.dense(hidden, at + "mlp.dense_4h_to_h")
        tied = c["tie_word_embeddings"]
        head = w["gpt_neox.embed_in.weight" if tied else "embed_out.weight"]
        return norm(x, "gpt_neox.final_layer_norm") @ head.T

    def llama(self, ids):
        c, w = self.c, self.w
        heads, shared, size = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        gemma = c["model_type"].startswith("gemma")
        act = ACTIVATIONS[c["hidden_activation" if gemma else "hidden_act"]]
        scale = (c["query_pre_attn_scalar"] if gemma else size) ** -0.5

        def norm(x, name):
            if name + ".weight" not in w:
                return x
            return rms_norm(x, w[name + ".weight"] + gemma, c["rms_norm_eps"])

        x = w["model.embed_tokens.weight"][ids] * (math.sqrt(c["hidden_size"]) if gemma else 1)
        for i in range(c["num_hidden_layers"]):
            at, rope = f"model.layers.{i}.", self.ropes[i]
            h = norm(x, at + "input_layernorm")
            if at + "self_attn.qkv_proj.weight" in w:
                qkv = self.dense(h, at + "self_attn.qkv_proj")
                q, k, v = np.split(qkv, [heads * size, (heads + shared) * size], -1)
            else:
                q, k, v = (self.dense(h, f"{at}self_attn.{p}_proj") for p in "qkv")
            q, k, v = norm(split(q, heads), at + "self_attn.q_norm"), split(k, shared), split(
                v, shared)
            k = norm(k, at + "self_attn.k_norm")
            dims = int(size * rope.get("partial_rotary_factor", 1))
            y = attention(rotate(q, rope, dims), rotate(k, rope, dims), v, scale, self.windows[i],
                          c.get("attn_logit_softcapping"))
            y = self.dense(join(y), at + "self_attn.o_proj")
            x = x + (norm(y, at + "post_attention_layernorm") if gemma else y)
            h = norm(x, at + ("pre_feedforward_layernorm" if gemma else
                              "post_attention_layernorm"))
            if at + "mlp.gate_up_proj.weight" in w:
                gate, up = np.split(self.dense(h, at + "mlp.gate_up_proj"), 2, -1)
            else:
                gate, up = (self.dense(h, f"{at}mlp.{p}_proj") for p in ("gate", "up"))
            y = self.dense(act(gate) * up, at + "mlp.down_proj")
            x = x + (norm(y, at + "post_feedforward_layernorm") if gemma else y)
        head = w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
        y = norm(x, "model.norm") @ head.T
        cap = c.get("final_logit_softcapping")
        return cap * np.tanh(y / cap) if cap else y
