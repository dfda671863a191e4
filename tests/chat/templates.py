"""Templates with what those of known families use, and conversations."""

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
    chat((SYSTEM, " Be brief. "), (USER, "Hi\n\nthere  "), (ASSISTANT, " Yes? "), (USER, "日本 é 😀")),
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

TEMPLATES = {
    "chatml": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
              "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "chatml-lines": """{% for message in messages %}
    {% if loop.first and messages[0]['role'] != 'system' %}
{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}
    {% endif %}
{{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' -}}
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
""",
    "llama2": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}\
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}\
{% set system_message = false %}{% endif %}{% for message in loop_messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}\
{% if loop.index0 == 0 and system_message != false %}\
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}\
{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}\
{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}\
{% endif %}{% endfor %}""",
    "llama3": "{% set loop_messages = messages %}{% for message in loop_messages %}"
              "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ "
              "message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
              "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
              "{% endif %}",
    "llama32": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- The system message comes first #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("There is no first message") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One tool-call at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
""",
    "qwen25": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are helpful.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "qwen3": """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "mistral-v1": "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != "
                  "(loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"
                  "{% if message['role'] == 'user' %}{{ ' [INST] ' + message['content'] + ' [/INST]' }}"
                  "{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token}}"
                  "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}"
                  "{% endif %}{% endfor %}",
    "mistral-v3": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported!") }}
    {%- endif %}
{%- endfor %}
""",
    "mistral-v7": """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}\
[SYSTEM_PROMPT] {{ message['content'] }}[/SYSTEM_PROMPT]{% elif message['role'] == 'user' %}\
{%- if message['content'] is string %}
[INST] {{ message['content'] }}[/INST]
{%- else %}
[INST]
{%- for block in message['content'] %}
{%- if block['type'] == 'text' %}{{ block['text'] }}
{%- elif block['type'] in ['image', 'image_url'] %}[IMG]
{%- else %}{{ raise_exception('Only text and image blocks are supported in message content!') }}
{%- endif %}
{%- endfor %}
[/INST]
{%- endif %}
{% elif message['role'] == 'assistant' %} {{ message['content'] }}{{ eos_token }}{% endif %}{% endfor %}""",
    "gemma2": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role "
              "not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == "
              "'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"
              "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}"
              "{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + "
              "message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
              "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
    "gemma3": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
""",
    "phi3": "{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}"
            "{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}"
            "{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' "
            "%}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
    "phi4": "{% for message in messages %}{% if (message['role'] == 'system') %}"
            "{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}"
            "{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + "
            "message['content'] + '<|im_end|><|im_start|>assistant<|im_sep|>'}}"
            "{% elif (message['role'] == 'assistant') %}{{message['content'] + '<|im_end|>'}}"
            "{% endif %}{% endfor %}",
    "phi4-tools": "{% for m in messages %}{% if m['role'] == 'system' and 'tools' in m and m['tools'] "
                  "is not none %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|tool|>' + m['tools'] + "
                  "'<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + m['role'] + '|>' + "
                  "(m['content'] or '') + '<|end|>' }}{% endif %}{% endfor %}",
    "deepseek": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}\
{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, \
system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' \
%}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}\
{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + \
message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}\
{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}\
{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and \
message['content'] is none %}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}\
{{'<｜tool▁calls▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\\n```json\\n' + \
tool['function']['arguments']|tojson + '\\n```'}}{%- set ns.is_first = true -%}{%- else %}\
{{'\\n' + tool['type']}}{%- endif %}{%- endfor %}{%- endif %}{%- if message['role'] == 'assistant' and \
message['content'] is not none %}{% set content = message['content'] %}{% if '</think>' in content %}\
{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + \
'<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.is_tool %}\
{{'<｜Assistant｜>'}}{% endif %}""",
    "smollm2": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
               "{{ '<|im_start|>system\nYou are a helpful AI assistant named X<|im_end|>\n' }}"
               "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
               "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
               "{{ '<|im_start|>assistant\n' }}{% endif %}",
    "zephyr": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + "
              "message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n"
              "{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == "
              "'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
              "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n"
              "{% endfor %}",
    "hermes-macro": """{%- macro json_to_python_type(json_spec) %}
{%- set basic_type_map = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} %}
{%- if basic_type_map[json_spec.type] is defined %}
    {{- basic_type_map[json_spec.type] }}
{%- elif json_spec.type == "array" %}
    {{- "list[" +  json_to_python_type(json_spec|items) + "]"}}
{%- elif json_spec.type == "object" %}
    {%- if json_spec.additionalProperties is defined %}
        {{- "dict[str, " + json_to_python_type(json_spec.additionalProperties) + ']'}}
    {%- else %}
        {{- "dict" }}
    {%- endif %}
{%- elif json_spec.type is iterable %}
    {{- "Union[" }}
    {%- for t in json_spec.type %}
      {{- json_to_python_type({"type": t}) }}
      {%- if not loop.last %}
        {{- "," }}
    {%- endif %}
    {%- endfor %}
    {{- "]" }}
{%- else %}
    {{- "Any" }}
{%- endif %}
{%- endmacro %}
{{- bos_token }}
{%- for tool in tools or [] %}
    {%- set tool = tool.function %}
    {{- tool.name + '(' }}
    {%- for param_name, param_fields in tool.parameters.properties|items %}
        {{- param_name + ": " + json_to_python_type(param_fields) }}
        {%- if not loop.last %}
            {{- ", " }}
        {%- endif %}
    {%- endfor %}
    {{- ")\n" }}
{%- endfor %}
{%- for message in messages %}
{{- '<|im_start|>' ~ message.role ~ '\n' ~ (message.content if message.content is not none else message.tool_calls[0]['function']|tojson) ~ '<|im_end|>\n' }}
{%- endfor %}""",
    "command-r": "{{ bos_token }}{% set tool_names = [] %}{% for t in tools or [] %}"
                 "{% set tool_names = tool_names + [t.function.name] %}{{ tool_names | join('/') }}"
                 "{% endfor %}{% for d in documents or [] %}{{ loop.index0 }}: {{ d.title ~ ' ' ~ d.text }}"
                 "{% endfor %}{% for message in messages if message.role != 'tool' %}{{ loop.index ~ "
                 "'/' ~ loop.length ~ ':' ~ loop.revindex0 ~ message.role|capitalize }}{% else %}none"
                 "{% endfor %}",
    "granite": "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] "
               "%}{%- set loop_messages = messages[1:] %}{%- else %}{%- set system_message = \"Today's "
               "Date: \" + strftime_now('%B %d, %Y') + \".\" %}{%- set loop_messages = messages %}"
               "{%- endif %}{{ system_message }}{%- for message in loop_messages %}"
               "{{ '<|' ~ message['role'] ~ '|>' }}{%- if loop.last and add_generation_prompt %}>>"
               "{%- endif %}{%- endfor %}",
    "olmo": "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
            "{{ '<|user|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'assistant' %}"
            "{% if not loop.last %}{{ '<|assistant|>\n'  + message['content'] + eos_token + '\n' }}"
            "{% else %}{{ '<|assistant|>\n'  + message['content'] + eos_token }}{% endif %}{% endif %}"
            "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}",
    "falcon": "{% for message in messages %}{% if not loop.first %}{{ '\n' }}{% endif %}"
              "{{ message['role'].title() + ': ' + (message['content']|string).strip() }}{% endfor %}"
              "{% if add_generation_prompt %}{{ '\nAssistant:' }}{% endif %}",
    "vicuna": "{% set sep = [' ', eos_token] %}{% for m in messages %}{% set i = loop.index0 %}"
              "{{ m.role|upper ~ ': ' ~ m.content ~ sep[i % 2] }}{% endfor %}",
    "generation": "{% for m in messages %}{% if m.role == 'assistant' %}A: {% generation %}"
                  "{{ m.content }}{{ eos_token }}{% endgeneration %}\n{% else %}U: {{ m.content }}\n"
                  "{% endif %}{% endfor %}",
    "break": "{% for m in messages %}{% if m.role == 'tool' %}{% break %}{% endif %}"
             "{% if m.role == 'system' %}{% continue %}{% endif %}{{ loop.index }}{{ m.role }}, "
             "{% endfor %}end",
    "set-block": "{% set text %}\n  {% for m in messages %}\n    {{ m.role }}\n  {% endfor %}\n"
                 "{% endset %}\n[{{ text | trim }}]{% set up | upper | replace('U', 'ü') %}{{ "
                 "messages[0].role }}{% endset %}{{ up }}",
    "filter-block": "{% filter upper | replace('A', 'Å') %}{{ messages[0].role }} and a{% endfilter %}",
    "call-block": "{% macro box(title, sep='=') %}{{ sep * 3 }}{{ title }}{{ caller() }}{{ sep * 3 }}"
                  "{% endmacro %}{% call box('T') %} in {{ messages|length }} {% endcall %}"
                  "{{ '|' }}{% macro deep(n) %}{{ n }}{% if n > 0 %}{{ deep(n - 1) }}{% endif %}"
                  "{% endmacro %}{{ deep(4) }}",
    "whitespace": "a  \n  {%- if true %}  \n b {%+ if true +%}  \n c  {% endif %}\n\n  {% endif -%}  \n\n"
                  "d {{- ' e ' -}}  f\n  {# comment #}\ng {#- c -#} h\n   {% raw %}{{ x }} {% y %}"
                  "{% endraw %}\n i\n",
    "scopes": "{% set x = 1 %}{% for m in messages %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}"
              "{% if true %}{% set x = 5 %}{% endif %}{{ x }}{% set a, b = 1, (2, 3) %}{{ a }}{{ b }}"
              "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + loop.index %}"
              "{% endfor %}{{ ns.n }}{% set y %}{{ x }}y{% endset %}{{ y }}",
    "loops": "{% for m in messages %}{{ loop.cycle('odd', 'even') }}{{ loop.changed(m.role) }}"
             "{{ loop.previtem.role if loop.previtem is defined }}{{ loop.nextitem is defined }} "
             "{% endfor %}{% for k, v in {'a': 1, 'b': [2]}.items() %}{{ k }}={{ v }};{% endfor %}"
             "{% for i in range(10, 0, -3) %}{{ i }}{% endfor %}{% for c in 'héy' %}{{ c }}.{% endfor %}"
             "{% for a in [] %}x{% else %}empty{% endfor %}",
    "prints": "{{ none }} {{ true }} {{ 1.0 }} {{ 1e20 }} {{ 0.1 + 0.2 }} {{ [1, 'a', none, {'b': "
              "\"it's\"}] }} {{ (1,) }} {{ (1, 2) }} {{ undefined_name }}|{{ messages[0].nothing }}|"
              "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 7 / 2 }} {{ 'a' * 3 }}",
    "json": "{{ tools | tojson }}\n{{ tools | tojson(indent=2) }}\n{{ messages | tojson }}\n"
            "{{ {'b': 1, 'a': [1.5, none, true, '\\t\"é/<']} | tojson(sort_keys=true, separators=(',', "
            "':')) }}{{ [] | tojson(indent=2) }}{{ {} | tojson }}",
    "undefined-error": "{{ messages[0].nothing.more }}",
    "none-error": "{% for m in messages %}{{ m.role + m.content }}{% endfor %}",
    "filters": "{{ messages | map(attribute='role') | join(', ') }} {{ messages | map(attribute='role') "
               "| unique | list }} {{ messages | selectattr('role', 'in', ['user', 'tool']) | list | "
               "length }} {{ messages | rejectattr('content') | list | length }} {{ ['b', 'A', 'c'] | "
               "sort }} {{ ['b', 'A', 'c'] | sort(reverse=true, case_sensitive=true) }} {{ {'b': 2, "
               "'a': 1} | dictsort }} {{ [3, 1, 2] | max }} {{ 'text' | default('x') }} {{ nope | "
               "default('x') }} {{ '' | default('y', true) }} {{ [1, 2, 3] | sum }} {{ 'a b' | "
               "title }} {{ [1, 2, 3] | reverse | list }} {{ 'abc' | first }} {{ '42' | int + 1 }} "
               "{{ 3.7 | round }} {{ -3 | abs }} {{ 'x' | e }} {{ '<a>' | escape }} {{ ['a', 'b'] | "
               "map('upper') | list }} {{ 'a\nb\n\nc' | indent(2) }} {{ 'a\nb' | indent(2, true) }}",
    "tests": "{{ 1 is odd }} {{ 2 is even }} {{ 'a' is string }} {{ none is none }} {{ 1 is number }} "
             "{{ true is boolean }} {{ messages is iterable }} {{ {} is mapping }} {{ 'a' is in ['a'] }} "
             "{{ 3 is divisibleby 3 }} {{ 1.0 is float }} {{ 1 is integer }} {{ true is integer }} "
             "{{ x is defined }} {{ x is not defined }} {{ 'A' is upper }} {{ 1 is eq 1 }} "
             "{{ messages[0].content is not none and messages[0].role is string }}",
    "methods": "{{ ' a b '.strip() }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'a  b'.split() }}|{{ "
               "'aXbX'.rsplit('X', 1) }}|{{ 'abc'.replace('b', 'd') }}|{{ 'abc'.startswith(('x', 'a')) }}|"
               "{{ 'abc'.find('c') }}|{{ 'é日'.upper() }}|{{ '-'.join(['a', 'b']) }}|{{ 'aba'.count('a') "
               "}}|{{ 'a\nb'.splitlines() }}|{{ {'a': 1}.get('b', 2) }}|{{ {'a': 1}.get('c') }}|{{ "
               "{'a': 1}.keys() | list }}|{{ {'a': 1}.values() | list }}|{{ [1, 2].index(2) }}|{{ "
               "'hello world'.capitalize() }}|{{ 'xxabcxx'.strip('x') }}|{{ '12'.isdigit() }}",
    "slices": "{{ 'héllo'[1:3] }}{{ 'héllo'[-2:] }}{{ 'héllo'[::-1] }}{{ [1, 2, 3][:-1] }}{{ "
              "messages[-1].role }}{{ [1, 2, 3][5] is defined }}{{ (messages[1:] + messages[:1]) | "
              "length }}{{ 'abc'[0] ~ 'abc'[-1] }}",
    "precedence": "{{ not true or true }} {{ 1 + 2 * 3 - -4 }} {{ 'a' ~ 1 + 2 }} {{ 1 < 2 < 3 }} "
                  "{{ 1 if false else 2 if false else 3 }} {{ 'a' in 'abc' and 'd' not in 'abc' }} "
                  "{{ (1 if false) is defined }} {{ [1, 2] == [1, 2] }} {{ 1 == 1.0 }} {{ 'a' 'b' }} "
                  "{{ -2 ** 2 }} {{ 2 | string ~ 3 }} {{ messages | length > 1 and true }}",
}

EXPRESSIONS = [
    "x | sort", "s.strip()", "s | trim | length", "d | items | list", "d.a", "d['a'][2]", "n // 2",
    "n % 3", "f * 2", "d | tojson", "d | length", "x[1:]", "x | map('string') | list", "s.upper()",
    "x | select('odd') | list", "x | select('gt', 1) | list", "x | reject('eq', 1) | list",
    "x | min ~ x | max", "'%s' in s", "s[::2]", "d.get('zz') is none", "f | int", "n | float",
    "'1.50' | float", "x + [s]", "x * 2", "none or 'b'", "0 and 1", "d == {'b': 1}", "x is sequence",
    "s is sameas s", "[[1, 2], [3]] | map('length') | list", "dict(a=1, b=2)", "range(3) | list",
    "'a' < 'b'", "x | join('-')", "{'a': {'b': 1}} | tojson", "'\\u00e9\\x41\\n'", "1_000", "1e3",
    "x | batch(2) | list", "'a-b' | replace('-', '+')", "nothing | length", "nothing.x", "nothing()",
    "'a' + 1", "1 + none", "x | nofilter", "x is notest", "raise_exception('no')", "x.append(4)",
    "d.update({'c': 1})", "s.__class__", "''.__class__.__mro__", "x | attr('__class__')", "7 / 0",
    "'a' | int(5)", "'abc' | wordcount", "x | list | first", "[] | first is defined", "x | last",
    "strftime_now('%Y-%m-%d')", "strftime_now('%d %b %Y %H:%M')", "x | sum", "loop is defined",
    "'x' if none else 'y'", "not x", "+3", "-f", "2 ** -1", "1 in x",
    "'b' in d", "x not in [1]", "'A'.lower() == 'a'", "(1, 2, 3)[1]", "[x for x in x]", "x | unique | list",
]
