// A small plan with something of everything, for tests of the plan file.
#pragma once

#include "runtime/plan/Expr.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/PlanWriter.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <elf.h>

namespace gpt2c::rt::sample {

/// The smallest image that passes for machine code: an ELF header without tables.
inline std::vector<std::byte> makeCubin() {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  std::vector<std::byte> bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

inline std::unique_ptr<plan::ExprT> boxed(plan::ExprT expr) {
  return std::make_unique<plan::ExprT>(std::move(expr));
}
inline std::unique_ptr<plan::ExprT> constant(int64_t value) { return boxed(constantExpr(value)); }

struct Sample {
  std::vector<std::byte> weightA, weightB, cubin = makeCubin();
  std::string ptx = std::string(".version 8.4\n") + '\0';
  std::string ir = "func @prefill() {}\n";
  std::string tokenizer = "tokenizer bytes";
  PlanContents contents;

  Sample() : weightA(4 * 6 * 4), weightB(6 * 4) {
    for (size_t i = 0; i < weightA.size(); ++i)
      weightA[i] = std::byte(i * 7);
    for (size_t i = 0; i < weightB.size(); ++i)
      weightB[i] = std::byte(255 - i);
    fillMeta();
    contents.weights = {weightA, weightB, weightA};
    contents.images = {cubin, std::as_bytes(std::span(ptx))};
    contents.irText = ir;
    contents.tokenizer = std::as_bytes(std::span(tokenizer));
  }

  plan::PlanT &meta() { return contents.meta; }
  plan::FunctionT &function() { return *contents.meta.functions[0]; }
  plan::StepT &step() { return *function().steps[0]; }

private:
  void fillMeta() {
    plan::PlanT &meta = contents.meta;
    meta.compiler_version = "1.2.3-test";
    meta.model_name = "tiny";
    meta.precision = "fp32";
    meta.flags = {"-O2"};
    meta.vocab_size = 11;
    meta.eos_token = 10;
    addWeight("wte", {4, 6});
    addWeight("bias", {6});
    addWeight("wte.again", {4, 6});
    meta.kv = std::make_unique<plan::KvPlanT>();
    meta.kv->layers = 2;
    meta.kv->heads = 3;
    meta.kv->head_dim = 4;
    meta.kv->dtype = plan::DType::F16;
    meta.kv->max_batch = 2;
    meta.kv->max_context = 16;
    meta.kv->bytes_per_token = 2 * 2 * 3 * 4 * 2;
    meta.kv->bytes = meta.kv->bytes_per_token * 2 * 16;
    auto source = std::make_unique<plan::SourceT>();
    source->name = "module0";
    source->text = "extern \"C\" __global__ void k0() {}\n";
    meta.sources.push_back(std::move(source));
    auto kernel = std::make_unique<plan::KernelT>();
    kernel->name = "k0";
    kernel->source = 0;
    meta.kernels.push_back(std::move(kernel));
    addImage("sm_90a", false);
    addImage("compute_80", true);
    auto remark = std::make_unique<plan::RemarkT>();
    remark->pass = "fuse-attention";
    remark->severity = "missed";
    remark->message = "the mask depends on the input";
    remark->nodes = {"/h.0/attn/Softmax"};
    meta.remarks.push_back(std::move(remark));
    meta.exported_inputs.push_back(makeExported("input_ids", plan::DType::I64, plan::Role::Ids));
    meta.exported_outputs.push_back(
        makeExported("present.1.key", plan::DType::F32, plan::Role::PresentTensor));
    meta.exported_outputs.back()->layer = 1;
    addFunction();
    addGolden();
  }

  void addGolden() {
    auto row = std::make_unique<plan::GoldenRowT>();
    row->top_ids = {3, 1};
    row->top_logprobs = {-0.5f, -1.0f};
    row->mean = -2;
    row->deviation = 0.5f;
    row->finite = contents.meta.vocab_size;
    row->projections = {0.25f, -0.125f};
    auto prompt = std::make_unique<plan::GoldenPromptT>();
    prompt->ids = {5, 6, 7};
    prompt->rows.push_back(std::move(row));
    contents.meta.golden = std::make_unique<plan::GoldenT>();
    contents.meta.golden->tolerance = 1e-3f;
    contents.meta.golden->prompts.push_back(std::move(prompt));
  }

  static std::unique_ptr<plan::ExportedPortT> makeExported(const char *name, plan::DType dtype,
                                                           plan::Role role) {
    auto port = std::make_unique<plan::ExportedPortT>();
    port->name = name;
    port->dtype = dtype;
    port->role = role;
    return port;
  }

  void addWeight(const char *name, std::vector<int64_t> shape) {
    auto weight = std::make_unique<plan::WeightT>();
    weight->name = name;
    weight->dtype = plan::DType::F32;
    weight->shape = std::move(shape);
    contents.meta.weights.push_back(std::move(weight));
  }

  void addImage(const char *arch, bool ptx) {
    auto image = std::make_unique<plan::ImageT>();
    image->source = 0;
    image->arch = arch;
    image->ptx = ptx;
    contents.meta.images.push_back(std::move(image));
  }

  static std::unique_ptr<plan::PortT> makePort(const char *name, plan::DType dtype, plan::Role role,
                                               std::vector<plan::ExprT> shape) {
    auto port = std::make_unique<plan::PortT>();
    port->name = name;
    port->dtype = port->exported_dtype = dtype;
    port->role = role;
    for (plan::ExprT &dim : shape)
      port->shape.push_back(boxed(std::move(dim)));
    return port;
  }

  static std::unique_ptr<plan::ArgT> makeArg(plan::ArgKind kind, int index) {
    auto arg = std::make_unique<plan::ArgT>();
    arg->kind = kind;
    arg->index = index;
    return arg;
  }

  void addFunction() {
    plan::ExprT batch = symbolExpr(0), seq = symbolExpr(1);
    plan::ExprT tokens = combineExpr(ExprOp::Mul, batch, seq);
    auto function = std::make_unique<plan::FunctionT>();
    function->name = "prefill";
    for (auto [name, max] : {std::pair<const char *, int64_t>{"batch", 2}, {"seq", 16}}) {
      auto symbol = std::make_unique<plan::SymbolT>();
      symbol->name = name;
      symbol->min = 1;
      symbol->max = max;
      function->symbols.push_back(std::move(symbol));
    }
    function->inputs.push_back(
        makePort("input_ids", plan::DType::I32, plan::Role::Ids, {batch, seq}));
    function->inputs.push_back(makePort("", plan::DType::F16, plan::Role::KvState, {}));
    function->outputs.push_back(
        makePort("logits", plan::DType::F32, plan::Role::Logits, {batch, seq, constantExpr(11)}));
    auto buffer = std::make_unique<plan::BufferT>();
    buffer->name = "hidden";
    buffer->dtype = plan::DType::F32;
    buffer->shape.push_back(boxed(tokens));
    buffer->shape.push_back(constant(6));
    buffer->offset = 256;
    buffer->bytes = 2 * 16 * 6 * 4;
    function->buffers.push_back(std::move(buffer));
    function->arena_bytes = 2048;
    function->scratch_bytes = 64;

    auto step = std::make_unique<plan::StepT>();
    step->op = "linear+bias";
    step->kernel = 0;
    step->mode = plan::LaunchMode::Launch;
    step->grid.push_back(boxed(combineExpr(ExprOp::CeilDiv, tokens, constantExpr(8))));
    step->grid.push_back(constant(1));
    step->grid.push_back(constant(1));
    step->block = {128, 1, 1};
    step->shared_bytes = 1024;
    step->args.push_back(makeArg(plan::ArgKind::Input, 0));
    step->args.push_back(makeArg(plan::ArgKind::Weight, 0));
    step->args.push_back(makeArg(plan::ArgKind::Weight, 1));
    step->args.back()->expr = boxed(constantExpr(8));
    step->args.push_back(makeArg(plan::ArgKind::Buffer, 0));
    step->args.push_back(makeArg(plan::ArgKind::Output, 0));
    step->args.push_back(makeArg(plan::ArgKind::I32, 0));
    step->args.back()->expr = boxed(tokens);
    step->args.push_back(makeArg(plan::ArgKind::F32, 0));
    step->args.back()->f32 = 0.125f;
    step->args.push_back(makeArg(plan::ArgKind::Scratch, 16));
    step->args.push_back(makeArg(plan::ArgKind::Null, 0));
    step->nodes = {"/h.0/MatMul", "/h.0/Add"};
    step->bytes = boxed(combineExpr(ExprOp::Mul, tokens, constantExpr(24)));
    step->flops = boxed(combineExpr(ExprOp::Mul, tokens, constantExpr(48)));
    function->steps.push_back(std::move(step));
    contents.meta.functions.push_back(std::move(function));
  }
};

inline std::vector<std::byte> readFile(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> chars((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<std::byte> bytes(chars.size());
  if (!chars.empty())
    std::memcpy(bytes.data(), chars.data(), chars.size());
  return bytes;
}

inline void writeFile(const std::string &path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char *>(bytes.data()), std::streamsize(bytes.size()));
}

} // namespace gpt2c::rt::sample
