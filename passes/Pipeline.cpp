#include "passes/Pipeline.h"

#include "ir/Error.h"
#include "ir/Verifier.h"

#include "llvm/ADT/STLExtras.h"

#include <chrono>
#include <map>

namespace gpt2c {

/// What an ONNX node may become. Ops.def lists the ops that passes make last, from linear on.
static std::vector<OpCode> exportedOps() {
  std::vector<OpCode> ops;
  for (const OpInfo *info : allOps())
    if (info->code < OpCode::Linear)
      ops.push_back(info->code);
  return ops;
}

llvm::ArrayRef<Stage> pipeline() {
  using O = OpCode;
  static const Stage stages[] = {
      {.name = "import",
       .summary = "the exported graph, as imported",
       .level = 0,
       .passes = {},
       .introduced = exportedOps()},
      {.name = "canonical",
       .summary = "shapes symbolic, constants folded, no redundant copies",
       .level = 0,
       .passes = {"resolve-shapes", "fold-constants", "simplify", "resolve-shapes", "cse",
                  "check-numbers"},
       .introduced = {},
       .removed = {{O::Squeeze, "simplify"}, {O::Unsqueeze, "simplify"}}},
      {.name = "recognised",
       .summary = "linear, layer_norm, gelu and attention instead of the chains that spell them",
       .level = 1,
       .passes = {"given-inputs", "short-texts", "recognise-quantized", "recognise-linear",
                  "simplify", "split-heads", "simplify", "recognise-norm", "recognise-gelu",
                  "recognise-rope", "simplify", "full-masks", "whole-masks", "recognise-attention",
                  "recognise-masked-softmax", "fold-scalars", "simplify", "cse"},
       .introduced = {O::Linear, O::Rope, O::Attention, O::MaskedSoftmax, O::Dequantize}},
      {.name = "cached",
       .summary = "@forward, @prefill and @decode over one KV state",
       .level = 0,
       .passes = {"kv-transform", "simplify", "cse"},
       .introduced = {O::Positions, O::KvAppend, O::CachedAttention, O::GatherLast}},
      {.name = "fused",
       .summary = "one op for each launch",
       .level = 2,
       .passes = {"fuse-kv", "fuse-epilogues", "fuse-residual-norm", "cse", "report-unfused"},
       .introduced = {O::Embed, O::AppendAttention, O::AddLayerNorm, O::Gated}},
      {.name = "quantised",
       .summary = "int8 where it was asked for",
       .level = 0,
       .passes = {"raise-precision", "smooth-norms", "insert-quantize", "quantize-kv", "cse",
                  "fuse-quantize", "cse"},
       .introduced = {O::Quantize, O::QuantizedLinear, O::RequantizedLinear, O::QuantizedLayerNorm,
                      O::QuantizedAppendAttention}},
      {.name = "folded",
       .summary = "norms without gain and shift where only products read them, gates beside what "
                  "they gate, pairs of rotations side by side",
       .level = 2,
       .passes = {"fold-norms", "interleave-gates", "interleave-rotations"},
       .introduced = {}},
      {.name = "lowered",
       .summary = "in the precision of the plan",
       .level = 0,
       .passes = {"lower-precision", "cse"},
       .introduced = {}},
      {.name = "rows",
       .summary = "@extend over rows of any sequences",
       .level = 2,
       .passes = {"extend-rows"},
       .introduced = {}},
      {.name = "sharded",
       .summary = "functions for several ranks beside the others",
       .level = 2,
       .passes = {"shard"},
       .introduced = {O::AllReduce, O::AllGather, O::RankPart}},
  };
  return stages;
}

llvm::Error checkOptions(const PipelineOptions &options, const PassOptions &passOptions) {
  if (passOptions.level > 2)
    return makeError(ExitCode::Usage, "-O" + llvm::Twine(passOptions.level) +
                                          " is no level; there are -O0, -O1 and -O2");
  if (passOptions.level == 0 && passOptions.quantize.any())
    return makeError(ExitCode::Usage, "-O0 recognises nothing that int8 could take the place of; "
                                      "--quantize and --kv-type need -O1 or -O2");
  if (passOptions.level < 2 && !passOptions.tensorParallel.empty())
    return makeError(ExitCode::Usage,
                     "--tensor-parallel: ranks share what -O2 makes; leave out -O" +
                         llvm::Twine(passOptions.level));
  for (llvm::StringRef name : options.disabled)
    if (!findPass(name))
      return makeError(ExitCode::Usage,
                       "there is no pass '" + name + "'; see gpt2c-opt --list-passes");
  if (options.compileTo.empty())
    return llvm::Error::success();
  auto stage = llvm::find_if(pipeline(), [&](auto &s) { return s.name == options.compileTo; });
  if (stage == pipeline().end())
    return makeError(ExitCode::Usage,
                     "there is no stage '" + options.compileTo + "'; see gpt2c-opt --list-passes");
  if (stage->level > passOptions.level)
    return makeError(ExitCode::Usage, "-O" + llvm::Twine(passOptions.level) +
                                          " leaves out the stage '" + options.compileTo +
                                          "', which begins at -O" + llvm::Twine(stage->level));
  return llvm::Error::success();
}

llvm::Error runPass(const Pass &pass, PassContext &ctx, const PipelineOptions &options) {
  ctx.setPass(pass.name);
  auto inPass = [&](llvm::Error e) { return inContext("in pass " + pass.name, std::move(e)); };
  auto start = std::chrono::steady_clock::now();
  if (llvm::Error e = pass.run(ctx))
    return inPass(std::move(e));
  std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  if (options.verifyEach)
    if (llvm::Error e = verify(ctx.module()))
      return inPass(std::move(e));
  if (options.afterPass)
    options.afterPass(pass, ctx.module(), time.count());
  return llvm::Error::success();
}

namespace {

/// The ops that are legal at some point of the pipeline.
class LegalOps {
public:
  /// `stage` ran. A pass that was left out removed nothing.
  void enter(const Stage &stage, llvm::ArrayRef<std::string> disabled) {
    for (OpCode code : stage.introduced)
      until_[code] = {};
    for (auto [code, pass] : stage.removed)
      if (!llvm::is_contained(disabled, pass))
        until_[code] = pass;
  }

  /// All ops that are not legal, each once.
  llvm::Error check(const Module &module, const Stage &stage) const {
    std::string found;
    llvm::SmallVector<OpCode> seen;
    for (auto &f : module.functions)
      for (auto &op : f->ops()) {
        auto it = until_.find(op->code());
        if ((it != until_.end() && it->second.empty()) || llvm::is_contained(seen, op->code()))
          continue;
        seen.push_back(op->code());
        found += "\n  " + op->describe() + " in @" + f->name() + ": ";
        found += it == until_.end() ? "no pass before makes it"
                                    : ("pass " + it->second + " should have removed it").str();
      }
    if (found.empty())
      return llvm::Error::success();
    return makeError(ExitCode::Unsupported,
                     "after stage " + stage.name + " these ops are not legal:" + found);
  }

private:
  std::map<OpCode, llvm::StringRef> until_; ///< empty: legal; else the pass that removes it
};

} // namespace

llvm::Error runPipeline(PassContext &ctx, const PipelineOptions &options) {
  LegalOps legal;
  bool reached = options.startAt.empty();
  for (const Stage &stage : pipeline()) {
    if (stage.name == options.stopBefore)
      return llvm::Error::success();
    reached |= stage.name == options.startAt;
    if (stage.level > ctx.options().level)
      continue;
    if (!reached) {
      legal.enter(stage, options.disabled);
      continue;
    }
    for (llvm::StringRef name : stage.passes)
      if (!llvm::is_contained(options.disabled, name))
        if (llvm::Error e = runPass(*findPass(name), ctx, options))
          return e;
    legal.enter(stage, options.disabled);
    if (llvm::Error e = legal.check(ctx.module(), stage))
      return e;
    if (options.afterStage)
      if (llvm::Error e = options.afterStage(stage, ctx.module()))
        return e;
    if (stage.name == options.compileTo)
      return llvm::Error::success();
  }
  return llvm::Error::success();
}

} // namespace gpt2c
