#!/usr/bin/env python3
"""The perplexity of a text as PyTorch computes it, to compare gpt2c-eval with.

    perplexity-pytorch.py FOLDER TEXT [--window=N] [--stride=N] [--max-tokens=N] [--float64]

FOLDER has config.json, vocab.json, merges.txt and model.onnx, whose initializers have the names of
a transformers GPT-2 (perhaps behind a prefix), as examples/sample has. Windows and what they score
are those of gpt2c-eval. Needs torch, transformers, tokenizers, onnx and numpy; runs on the GPU
where there is one.
"""
import argparse
import pathlib

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel


def load(folder):
    weights = {}
    for initializer in onnx.load(folder / "model.onnx").graph.initializer:
        for start in ("transformer.", "lm_head."):
            if start in initializer.name:
                name = initializer.name[initializer.name.index(start):]
                array = numpy_helper.to_array(initializer).astype(np.float32)
                weights[name] = torch.from_numpy(array)
    weights.setdefault("transformer.wte.weight", weights.get("lm_head.weight"))
    weights.setdefault("lm_head.weight", weights["transformer.wte.weight"])
    config = GPT2Config.from_json_file(folder / "config.json")
    model = GPT2LMHeadModel(config).float()
    model.load_state_dict(weights)
    return model.eval()


def tokens(folder, text):
    tokenizer = ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer.encode(text.read_bytes().decode()).ids


@torch.no_grad()
def perplexity(model, ids, window, stride):
    nll, scored, end = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        first, end = max(end, begin + 1), min(begin + window, len(ids))
        targets = torch.arange(first, end, device=ids.device)
        if len(targets):
            logits = model(ids[begin:end][None]).logits[0]
            chosen = torch.log_softmax(logits.double(), -1)[targets - 1 - begin, ids[targets]]
            nll -= chosen.sum().item()
            scored += len(targets)
        if end == len(ids):
            break
    return scored, np.exp(nll / scored)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--window", type=int, default=0)
    parser.add_argument("--stride", type=int, default=0)
    parser.add_argument("--max-tokens", type=int, default=None)
    parser.add_argument("--float64", action="store_true")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load(options.folder).to(device)
    if options.float64:
        model = model.double()
    window = options.window or model.config.n_positions
    ids = torch.tensor(tokens(options.folder, options.text)[:options.max_tokens], device=device)
    scored, value = perplexity(model, ids, window, options.stride or window)
    print(f"{scored} tokens scored, windows of {window}, stride {options.stride or window}: "
          f"perplexity {value:.6f}")


main()
