// A checkpoint and its export are one model: after the pipeline every function has the same ops
// over the same constants, to the last bit. Up to names, and the order of what does not depend on
// each other.
#include "frontend/Import.h"
#include "ir/Text.h"
#include "passes/Pipeline.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

using namespace gpt2c;
namespace fs = std::filesystem;

namespace {

using OpTexts = std::multiset<std::string>;

/// The ops of a function, each with all that it depends on in place of its operands' names.
class Digest {
public:
  static OpTexts of(const Function &f) {
    Digest d;
    for (unsigned i = 0; i < f.numArguments(); ++i)
      d.texts_[f.argument(i)] = f.argument(i)->name + ":" + f.argument(i)->type.str();
    OpTexts lines;
    for (auto &op : f.ops())
      lines.insert(d.add(*op));
    return lines;
  }

private:
  std::string add(const Op &op) {
    std::vector<std::string> operands;
    for (const Value *v : op.operands())
      operands.push_back(v ? texts_.lookup(v) : "none");
    if (op.is(OpCode::Add) || op.is(OpCode::Mul))
      llvm::sort(operands);
    std::string line = op.info().mnemonic.str() + "(" + llvm::join(operands, ", ") + ")";
    if (op.is(OpCode::Constant))
      line += llvm::utohexstr(op.constant.hash());
    for (const NamedAttr &attr : op.givenAttrs())
      if (attr.name != "allowzero") // no shape has a 0
        line += " " + attr.name.str() + "=" + text(attr.value);
    for (const Value *result : op.results())
      line += " : " + result->type.str();
    for (unsigned i = 0; i < op.numResults(); ++i)
      texts_[op.result(i)] =
          llvm::utohexstr(std::hash<std::string>()(line)) + "." + std::to_string(i);
    return line;
  }

  /// A scale may be the square of a rounded root.
  static std::string text(const Attr &attr) {
    if (const double *number = std::get_if<double>(&attr))
      return llvm::formatv("{0:E4}", *number);
    return attrText(attr);
  }

  llvm::DenseMap<const Value *, std::string> texts_;
};

std::unique_ptr<Module> compiled(const std::string &path) {
  auto module = importModel(path);
  EXPECT_TRUE(bool(module)) << llvm::toString(module.takeError());
  if (!module)
    return nullptr;
  Function &main = *(*module)->function("main");
  const Shape ids = main.argument(0)->type.shape;
  main.substitute(*ids[0].asSymbol(), Dim::symbol("batch"));
  main.substitute(*ids[1].asSymbol(), Dim::symbol("seq"));
  std::vector<Remark> remarks;
  PassContext context(**module, {}, remarks);
  EXPECT_EQ(llvm::toString(runPipeline(context, {})), "");
  return std::move(*module);
}

const fs::path checkpoints = fs::path(GPT2C_SOURCE_DIR) / "tests" / "data" / "checkpoints";

std::vector<std::string> withExport() {
  std::vector<std::string> found;
  for (const auto &folder : fs::directory_iterator(checkpoints))
    if (fs::exists(folder.path() / "export" / "model.onnx"))
      found.push_back(folder.path().filename().string());
  llvm::sort(found);
  return found;
}

/// The lines of `a` that are not in `b`.
std::string without(const OpTexts &a, const OpTexts &b) {
  std::vector<std::string> left;
  std::ranges::set_difference(a, b, std::back_inserter(left));
  return llvm::join(left, "\n");
}

class CheckpointMatrix : public testing::TestWithParam<std::string> {};

TEST_P(CheckpointMatrix, IsItsExport) {
  const fs::path folder = checkpoints / GetParam();
  auto ours = compiled(folder.string()), theirs = compiled((folder / "export/model.onnx").string());
  ASSERT_TRUE(ours && theirs);
  for (const char *name : {"forward", "prefill", "decode", "extend"}) {
    ASSERT_NE(ours->function(name), nullptr) << name;
    ASSERT_NE(theirs->function(name), nullptr) << name;
    const OpTexts a = Digest::of(*ours->function(name)), b = Digest::of(*theirs->function(name));
    EXPECT_GT(a.size(), 20u);
    EXPECT_EQ(without(a, b), "") << "not in the export's @" << name;
    EXPECT_EQ(without(b, a), "") << "in the export's @" << name << " alone";
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, CheckpointMatrix, testing::ValuesIn(withExport()),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

} // namespace
