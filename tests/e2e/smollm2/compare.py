"""compare.py PLAN QUESTIONS TOKENS: the first answers of golden.json (make_golden.py), as far as so
many tokens, and their prompts."""
import json
import pathlib
import subprocess
import sys


def parting(got, expected):
    """Where two lists of ids part, for people; nothing where they do not."""
    if got == expected:
        return ""
    at = next((i for i, (a, b) in enumerate(zip(got, expected)) if a != b),
              min(len(got), len(expected)))
    return f"part at {at}: {got[at:at + 5]} instead of {expected[at:at + 5]}"


def main():
    plan, questions, tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    golden = json.loads((pathlib.Path(__file__).parent / "golden.json").read_text())
    cases = golden["cases"][:questions]
    out = subprocess.run(["gpt2c-run", plan, "--device=cpu", "--chat", "-n", str(tokens),
                          "--output=jsonl", *(f"--prompt={c['question']}" for c in cases)],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    answers = [json.loads(line) for line in out.splitlines()]
    failed, compared = len(answers) != len(cases), 0
    for case, answer in zip(cases, answers):
        expected = case["answer"][:tokens]
        compared += len(expected)
        for what, wrong in (("prompts", parting(answer["prompt_ids"], case["prompt"])),
                            ("answers", parting(answer["ids"], expected))):
            if wrong:
                failed = True
                print(f"FAIL: {case['question']}: the {what} {wrong}")
    print(f"{len(answers)} answers, {compared} tokens")
    return failed


if __name__ == "__main__":
    sys.exit(main())
