#!/usr/bin/env bash
# shared-prefix.sh: a Llama of four heads on each of its keys, whose requests begin with one prefix,
# some of them with a longer one: attention computes it once for all of them, in steps and beside
# prompts, and the tokens are those of a plan that reads it for each.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
export GPT2C_EMULATED_PROCESSORS=1 # of a device this small few pages are worth a launch
mkdir -p llama
python3 - <<'END_OF_MODEL'
import json, random, struct

width, heads, shared, size, hidden, vocabulary, layers = 64, 8, 2, 32, 64, 128, 2
shapes = {"model.embed_tokens.weight": (vocabulary, width), "model.norm.weight": (width,)}
for i in range(layers):
    at = f"model.layers.{i}."
    for name, shape in {"self_attn.q_proj": (heads * size, width),
                        "self_attn.k_proj": (shared * size, width),
                        "self_attn.v_proj": (shared * size, width),
                        "self_attn.o_proj": (width, heads * size), "mlp.gate_proj": (hidden, width),
                        "mlp.up_proj": (hidden, width), "mlp.down_proj": (width, hidden),
                        "input_layernorm": (width,),
                        "post_attention_layernorm": (width,)}.items():
        shapes[at + name + ".weight"] = shape
draw = random.Random(3)
header, data = {}, bytearray()
for name, shape in shapes.items():
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    values = [draw.gauss(0, 0.3) if len(shape) > 1 else 1.0 for _ in range(count)]
    begin = len(data)
    data += struct.pack(f"<{count}e", *values)
    header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [begin, len(data)]}
text = json.dumps(header).encode()
with open("llama/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + data)
with open("llama/config.json", "w") as f:
    json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width,
               "intermediate_size": hidden, "num_hidden_layers": layers, "head_dim": size,
               "num_attention_heads": heads, "num_key_value_heads": shared,
               "vocab_size": vocabulary, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
               "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu",
               "torch_dtype": "float16"}, f)
END_OF_MODEL
make() {
  compilePlan llama -o "$1" --gpu-arch="$GPT2C_TEST_ARCH" --precision=fp16 --verify=off \
    --max-batch=12 --max-context=512 --decode=graph "${@:2}"
}
make shared.plan
make single.plan --shared-prefixes=false
for i in 1 2 3 4 5 6 7 8 9; do
  echo "{\"prefix\": $((i < 5 ? 200 : 330)), \"prompt\": $((2 * i)), \"max_tokens\": 8}"
done >prefix.jsonl
echo '{"prompt": 130, "max_tokens": 3}' >>prefix.jsonl
play() {
  GPT2C_EMULATED_TRACE=1 gpt2c-bench "$1" --device=cuda --workload="$2" --rate=inf --row-budget=64 \
    -o json 2>trace.txt
}
number() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
play single.plan prefix.jsonl >single.json
! grep -q attention_prefix trace.txt
play shared.plan prefix.jsonl >shared.json
for rest in attention_decode attention_pages; do
  grep -A1 attention_prefix trace.txt | grep -q "$rest"
done
[ "$(number completed <shared.json)" = 10 ]
[ "$(number answers <shared.json)" = "$(number answers <single.json)" ]
# Without a prefix there is no launch.
sed 's/"prefix": [0-9]*, //' prefix.jsonl >none.jsonl
play shared.plan none.jsonl >none.json
! grep -q attention_prefix trace.txt
rm -f shared.plan single.plan
