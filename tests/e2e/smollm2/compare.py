"""compare.py PLAN QUESTIONS TOKENS [cpu|cuda [NEAR]]: the first answers of golden.json
(make_golden.py), as far as so many tokens, and their prompts. Where an answer parts, the log
probabilities of both tokens behind what is the same are printed; it may part where they are nearer
than NEAR, as in halves."""
import json
import pathlib
import subprocess
import sys


def run(plan, device, tokens, *more):
    out = subprocess.run(["gpt2c-run", plan, f"--device={device}", "-n", str(tokens), *more],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    return out.splitlines()


def parting(got, expected):
    """Where two lists of ids part; none where they do not."""
    if got == expected:
        return None
    return next((i for i, (a, b) in enumerate(zip(got, expected)) if a != b),
                min(len(got), len(expected)))


def tie(plan, device, ids, got, expected):
    """How much more probable, as logarithms, the plan finds the one token behind `ids`."""
    answer = json.loads("".join(run(plan, device, 1, "--output=json", "--logprobs=5",
                                    "--ignore-eos", "--ids=" + ",".join(map(str, ids)))))
    top = {t["id"]: t["logprob"] for t in answer["sequences"][0]["logprobs"][0]["top"]}
    if got not in top or expected not in top:
        return None
    return top[got], top[expected]


def main():
    plan, questions, tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    device, near = (sys.argv[4:] + ["cpu", "0"][len(sys.argv) - 4:])[:2]
    golden = json.loads((pathlib.Path(__file__).parent / "golden.json").read_text())
    cases = golden["cases"][:questions]
    answers = [json.loads(line) for line in
               run(plan, device, tokens, "--chat", "--output=jsonl",
                   *(f"--prompt={c['question']}" for c in cases))]
    failed, compared = len(answers) != len(cases), 0
    for case, answer in zip(cases, answers):
        expected = case["answer"][:tokens]
        compared += len(expected)
        if parting(answer["prompt_ids"], case["prompt"]) is not None:
            failed = True
            print(f"FAIL: {case['question']}: the prompt is another one")
            continue
        got, at = answer["ids"], parting(answer["ids"], expected)
        if at is None:
            continue
        both = at < min(len(got), len(expected)) and tie(
            plan, device, case["prompt"] + expected[:at], got[at], expected[at])
        close = both and both[0] - both[1] <= float(near)
        failed |= not close
        print(f"{'near tie' if close else 'FAIL'}: {case['question']}: the answers part at {at}: "
              f"{got[at:at + 5]} instead of {expected[at:at + 5]}" +
              (f", log probabilities {both[0]:.4f} and {both[1]:.4f}" if both else ""))
    print(f"{len(answers)} answers, {compared} tokens")
    return failed


if __name__ == "__main__":
    sys.exit(main())
