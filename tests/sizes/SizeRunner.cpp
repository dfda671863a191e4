// Compiles small graphs of one input ids[batch, seq] and runs them at every length, for sizes.py.
//
//   size_runner LEVEL LENGTHS BATCHES model.onnx...
//
// For each model, in little endian, on stdout: how it compiled; if it did, for each batch of 1 to
// BATCHES and each length of 1 to LENGTHS how it ran, and its outputs. "How" is a byte, 0 for well,
// and a text that says why not (u32 length, bytes); outputs are a u32 count and for each its
// element type, its rank (bytes), its dimensions (i64) and its elements.
#include "frontend/Import.h"
#include "ir/Calculate.h"
#include "ir/Executor.h"
#include "ir/Text.h"
#include "passes/Pipeline.h"
#include "runtime/plan/Expr.h"

#include <cstdio>
#include <cstdlib>

using namespace gpt2c;

namespace {

void write(const void *bytes, size_t size) { std::fwrite(bytes, 1, size, stdout); }
template <typename T> void write(T value) { write(&value, sizeof value); }

void writeHow(const std::string &why) {
  write(uint8_t(!why.empty()));
  write(uint32_t(why.size()));
  write(why.data(), why.size());
}

llvm::Expected<std::unique_ptr<Module>> compile(const char *path, unsigned level) {
  auto module = importOnnx(path);
  if (!module)
    return module.takeError();
  std::vector<Remark> remarks;
  PassOptions passes;
  passes.level = level;
  PassContext context(**module, passes, remarks);
  PipelineOptions pipeline;
  pipeline.verifyEach = true;
  if (llvm::Error e = runPipeline(context, pipeline))
    return e;
  std::string text;
  for (auto &f : (*module)->functions)
    text += toText(*f);
  auto parsed = parseModule(text, "printed");
  if (!parsed)
    return parsed.takeError();
  return module;
}

/// The dimensions of all values, each once.
std::vector<Dim> dimensionsOf(const Function &f) {
  std::vector<Dim> dims;
  for (auto &op : f.ops())
    for (const Value *r : op->results())
      for (const Dim &d : r->type.shape)
        if (!d.isConstant() && std::find(dims.begin(), dims.end(), d) == dims.end())
          dims.push_back(d);
  return dims;
}

/// What a plan calculates for `dims` is what they are.
std::string checkExpressions(const std::vector<Dim> &dims, const SymbolMap &symbols) {
  for (const Dim &d : dims) {
    std::vector<int64_t> values;
    std::vector<std::string> names;
    bool known = true;
    plan::ExprT expr = calculate(d, rt::ExprAlgebra{[&](std::string_view name) {
                                   auto it = symbols.find(llvm::StringRef(name));
                                   known &= it != symbols.end();
                                   values.push_back(known ? it->second : 0);
                                   return int(values.size()) - 1;
                                 }});
    if (!known)
      continue;
    auto value = rt::evalExpr(expr, values);
    if (!value || *value != d.evaluate(symbols))
      return "internal: a plan calculates another size than " + d.str();
  }
  return "";
}

std::string run(const Function &f, const std::vector<Dim> &dims, int64_t batch, int64_t length,
                std::vector<Tensor> &outputs) {
  Tensor ids(DType::I64, {batch, length});
  for (int64_t i = 0; i < ids.count(); ++i)
    ids.data<int64_t>()[i] = (i / length * 37 + i % length * 11) % 97;
  const Type &type = f.argument(0u)->type;
  SymbolMap symbols;
  if (auto bound = bindShape(type.shape, ids.shape(), symbols, "ids"); !bound)
    return llvm::toString(bound.takeError());
  if (std::string wrong = checkExpressions(dims, symbols); !wrong.empty())
    return wrong;
  auto out = Executor(f).run({ids.cast(type.dtype)});
  if (!out)
    return llvm::toString(out.takeError());
  outputs = std::move(*out);
  return "";
}

void writeTensor(const Tensor &t) {
  write(uint8_t(t.dtype()));
  write(uint8_t(t.rank()));
  for (int64_t d : t.shape())
    write(d);
  write(t.raw(), size_t(t.count()) * byteSize(t.dtype()));
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 5)
    return 1;
  const unsigned level = unsigned(std::atoi(argv[1]));
  const int lengths = std::atoi(argv[2]), batches = std::atoi(argv[3]);
  for (int i = 4; i < argc; ++i) {
    auto module = compile(argv[i], level);
    writeHow(module ? "" : llvm::toString(module.takeError()));
    if (!module)
      continue;
    const Function &f = *(*module)->functions.front();
    const std::vector<Dim> dims = dimensionsOf(f);
    for (int64_t batch = 1; batch <= batches; ++batch)
      for (int64_t length = 1; length <= lengths; ++length) {
        std::vector<Tensor> outputs;
        writeHow(run(f, dims, batch, length, outputs));
        write(uint32_t(outputs.size()));
        for (const Tensor &t : outputs)
          writeTensor(t);
      }
  }
  return 0;
}
