#!/usr/bin/env python3
"""make_golden.py FOLDER OUT: what transformers answers to eight questions with the checkpoint in
FOLDER (examples/chat/smollm2.py makes it), greedy, in single precision: prompts and tokens. Needs
torch and transformers."""
import json
import pathlib
import sys

import torch
import transformers

QUESTIONS = [
    "What is the capital of France?",
    "Write a short story about a lighthouse keeper and a storm.",
    "Why is the sky blue?",
    "Give me three tips for learning to cook.",
    "What is 17 plus 25?",
    "Explain what a compiler does to a child.",
    "Write a Python function that reverses a string.",
    "Summarise the plot of Romeo and Juliet.",
]
TOKENS = 200


def main():
    folder, out = sys.argv[1:]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    prompts = [tokenizer.apply_chat_template([{"role": "user", "content": question}],
                                             add_generation_prompt=True, tokenize=False)
               for question in QUESTIONS]
    batch = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
    rows = model.generate(**batch, max_new_tokens=TOKENS, do_sample=False)
    cases = []
    for question, prompt, row in zip(QUESTIONS, prompts, rows):
        answer = row[batch["input_ids"].shape[1]:].tolist()
        length = next((i + 1 for i, token in enumerate(answer) if token in ends), len(answer))
        cases.append({"question": question,
                      "prompt": tokenizer(prompt, add_special_tokens=False)["input_ids"],
                      "answer": answer[:length]})
        print(tokenizer.decode(cases[-1]["answer"])[:100])
    lines = ",\n".join(json.dumps(case) for case in cases)
    pathlib.Path(out).write_text(
        f'{{"torch": "{torch.__version__}", "transformers": "{transformers.__version__}",\n'
        f'"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
