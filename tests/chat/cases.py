"""Conversations and expressions that the templates are compared over."""

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
TOOL = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a \"place\" <now>", "parameters": {
        "type": "object", "required": ["place"], "properties": {
            "place": {"type": "string", "description": "A town é"},
            "days": {"type": ["integer", "null"], "enum": [1, 2, 3]},
            "deep": {"type": "object", "properties": {"x": {"type": "number", "default": 1.0}}}}}}}
CALL = {"id": "abcdef123", "type": "function",
        "function": {"name": "weather", "arguments": {"place": "Bern", "days": 2, "ok": True}}}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def chat(*turns, prompt=True, **more):
    messages = [t if isinstance(t, dict) else {"role": t[0], "content": t[1]} for t in turns]
    return {"messages": messages, "add_generation_prompt": prompt, "tools": None} | TOKENS | more


CONVERSATIONS = [
    chat((USER, "Hello")),
    chat((SYSTEM, " Be brief. "), (USER, "Hi\n\nthere  "), (ASSISTANT, " Yes? "),
         (USER, "日本 é 😀")),
    chat((SYSTEM, "Only a system")),
    chat((USER, "a"), (ASSISTANT, "b"), prompt=False),
    chat((USER, "a"), (USER, "b")),
    chat((ASSISTANT, "first"), (USER, "b")),
    chat((USER, "What is it like?"), tools=[TOOL]),
    chat((SYSTEM, "s"), (USER, "u"),
         {"role": ASSISTANT, "content": None, "tool_calls": [CALL, CALL]},
         {"role": "tool", "name": "weather", "tool_call_id": "abcdef123", "content": "{\"t\": 7}"},
         {"role": "tool", "name": "weather", "tool_call_id": "abcdef124", "content": "8"},
         (ASSISTANT, "Cold."), (USER, "Thanks"), tools=[TOOL, TOOL]),
    chat((USER, "q"), {"role": ASSISTANT, "content": "<think>\nhm\n</think>\n\nanswer",
                       "reasoning_content": "hm"}, (USER, "more"), enable_thinking=False),
    chat((USER, "q"), (ASSISTANT, "<think>x</think>y"), (USER, "z"), enable_thinking=True),
    chat({"role": USER, "content": [{"type": "text", "text": "What is this?"},
                                    {"type": "image"}, {"type": "text", "text": " And that?"}]}),
    chat(("critic", "An odd role"), (USER, "x")),
    chat((USER, ""), date_string="26 Jul 2024", documents=[{"title": "T", "text": "body"}]),
    chat((USER, "{{ not a template }} {% x %} <|im_end|>"), custom_tools=[TOOL]),
]

EXPRESSIONS = [
    "s | items | list", "f | items | list", "none | items | list", "s * true", "x * false",
    "x | sort", "s.strip()", "s | trim | length", "d | items | list", "d.a", "d['a'][2]",
    "n // 2", "n % 3", "f * 2", "d | tojson", "d | length", "x[1:]", "x | map('string') | list",
    "s.upper()", "x | select('odd') | list", "x | select('gt', 1) | list",
    "x | reject('eq', 1) | list", "x | min ~ x | max", "'%s' in s", "s[::2]",
    "d.get('zz') is none", "f | int", "n | float", "'1.50' | float", "x + [s]", "x * 2",
    "none or 'b'", "0 and 1", "d == {'b': 1}", "x is sequence", "s is sameas s",
    "[[1, 2], [3]] | map('length') | list", "dict(a=1, b=2)", "range(3) | list", "'a' < 'b'",
    "x | join('-')", "{'a': {'b': 1}} | tojson", "'\\u00e9\\x41\\n'", "1_000", "1e3",
    "x | batch(2) | list", "'a-b' | replace('-', '+')", "nothing | length", "nothing.x",
    "nothing()", "'a' + 1", "1 + none", "x | nofilter", "x is notest", "raise_exception('no')",
    "x.append(4)", "d.update({'c': 1})", "s.__class__", "''.__class__.__mro__",
    "x | attr('__class__')", "7 / 0", "'a' | int(5)", "'abc' | wordcount", "x | list | first",
    "[] | first is defined", "x | last", "strftime_now('%Y-%m-%d')",
    "strftime_now('%d %b %Y %H:%M')", "x | sum", "loop is defined", "'x' if none else 'y'",
    "not x", "+3", "-f", "2 ** -1", "1 in x", "'b' in d", "x not in [1]", "'A'.lower() == 'a'",
    "(1, 2, 3)[1]", "[x for x in x]", "x | unique | list",
]
