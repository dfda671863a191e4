#!/usr/bin/env bash
# gpt2c-run -i on the sample: turns, commands, line editing, history, Ctrl-C; chats by a template.
set -uo pipefail
tests="$GPT2C_SOURCE_DIR/tests/e2e"
rm -rf state folder
cp -r "$GPT2C_SOURCE_DIR/examples/sample" folder
cp "$tests/chat-folder"/* folder
gpt2c "$GPT2C_SOURCE_DIR/examples/sample/model.onnx" -o sample.plan --gpu-arch=none 2>/dev/null ||
  exit 1
gpt2c folder/model.onnx -o chat.plan --gpu-arch=none --verify=off 2>/dev/null || exit 1
timeout 300 python3 "$tests/interactive.py" sample.plan &&
  timeout 300 python3 "$tests/chat.py" chat.plan sample.plan
rc=$?
rm -rf state folder sample.plan chat.plan
exit $rc
