# make demo    set up, build, compile the sample model, continue a prompt
# make test    set up, build, run every test; what tests alone need is set up, too
# make build   set up and build
BUILD  ?= build
PROMPT ?= She opened the door and
SAMPLE  = examples/sample

.PHONY: demo test build setup setup-tests install clean

demo: $(BUILD)/build.ninja
	cmake --build $(BUILD) --target gpt2c_tools_all
	$(BUILD)/bin/gpt2c $(SAMPLE)/model.onnx -o $(BUILD)/sample.plan
	$(BUILD)/bin/gpt2c-run $(BUILD)/sample.plan --prompt="$(PROMPT)" -n 40

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
