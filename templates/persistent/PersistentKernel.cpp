// Sizes and source of a persistent kernel.
#include "templates/persistent/PersistentBuilder.h"
#include "templates/persistent/PersistentConfig.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

using namespace persistent;

/// The most bytes of a row of x whose weights are in a slot.
static constexpr int64_t chunkBytes = 2048;

static int64_t roundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
/// The distance of rows in a slot: that many bytes more than a multiple of 128 as four lanes read
/// of a row, so that the lanes of several rows read from different banks.
int64_t PersistentBuilder::slotPitch(DType weights) const {
  const int64_t bytes = chunk_ * byteSize(weights), read = 64 * byteSize(weights) / byteSize(type_);
  int64_t pitch = roundUp(bytes, 16);
  while (pitch % 128 != read)
    pitch += 16;
  return pitch;
}

llvm::Error PersistentBuilder::chooseSizes() {
  const int64_t bytes = byteSize(type_), vector = 16 / bytes;
  int64_t least = linears_[0].form.k;
  for (const LinearStage &l : linears_)
    least = std::min(least, l.form.k);
  auto fits = [&](int64_t chunk) {
    return chunk * bytes <= chunkBytes && llvm::all_of(linears_, [&](const LinearStage &l) {
             return l.form.k % chunk == 0 && chunk % vector == 0 &&
                    chunk * byteSize(l.form.weights) % 16 == 0;
           });
  };
  for (chunk_ = least; chunk_ > 0 && !fits(chunk_);)
    --chunk_;
  if (chunk_ == 0)
    return unsupported("the widths of its linears have no common divisor whose rows are whole "
                       "vectors of 16 bytes");
  records_ = out_.steps.size() + 1;
  for (const LinearStage &l : linears_)
    slotBytes_ = std::max(slotBytes_, roundUp(unitRows * slotPitch(l.form.weights), 128));
  reduceBytes_ = roundUp(
      std::max(warps * rows_ * (mostRoundUnits * unitRows + 2), (warps + 1) * (headDim_ + 2)) * 4,
      128);
  int64_t fixed = 2 * reduceBytes_ + records_ * recordBytes;
  slots_ = (sharedBytes - fixed) / (slotBytes_ + 16);
  for (LinearStage &l : linears_) {
    const int64_t chunks = l.form.k / chunk_, most = std::min<int64_t>(slots_, 32) / chunks;
    if (fixed > sharedBytes || most < 1)
      return unsupported("its stages and inputs leave no shared memory for weights");
    int64_t &tiles = l.form.tiles;
    tiles = std::min({(l.units + processors - 1) / processors, mostRoundUnits, most});
    if (l.form.logits && tiles == 3) // those of a row are a power of two, for the choice
      tiles = most >= 4 ? 4 : 2;
    auto known =
        llvm::find_if(forms_, [&](const PersistentLinear &f) { return f.key() == l.form.key(); });
    auto &args = out_.steps[l.step]->args;
    *args[0] = b_.i32((2 + (known - forms_.begin())) | tiles << 16);
    *args[5] = b_.i32(chunk_ * byteSize(l.form.weights) | slotPitch(l.form.weights) << 16);
    if (known == forms_.end())
      forms_.push_back(l.form);
  }
  shared_ = slots_ * (slotBytes_ + 16) + fixed;
  threads_ = 32 * (warps + finishers() + 1);
  for (const PersistentLinear &f : forms_)
    if (!hasFunction(f.activation))
      return unsupported("no kernel has the activation " + f.activation);
  return llvm::Error::success();
}

std::string PersistentBuilder::linearText(const std::string &name,
                                          const PersistentLinear &l) const {
  std::string text;
  {
    Config c(text, name);
    c.type("T", cudaType(type_)).type("W", cudaType(l.weights));
    c.number("K", l.k).number("Chunk", chunk_).number("Rows", rows_).number("Tiles", l.tiles);
    c.number("Splits", l.parts ? splits_ : 1).number("HeadDim", l.parts ? headDim_ : l.k);
    c.flag("Gain", l.gain).flag("Bias", l.bias).flag("Residual", l.residual);
    c.flag("Logits", l.logits);
    c.norm("Norm", l.norm).real("NormScale", l.normScale).activation(l.activation);
  }
  return text;
}

void PersistentBuilder::emitKernel() {
  KernelSource k;
  k.name = b_.pool().nextKernelName("persistent");
  k.headers = {"templates/persistent/persistent.cuh", "templates/persistent/persistent_tokens.cuh",
               "templates/persistent/persistent_attention.cuh",
               "templates/persistent/persistent_linear.cuh", "templates/linear/parts/epilogue.cuh"};
  k.params = {"records", "count"};
  const char *t = cudaType(type_);
  Config(k.text, k.name + "Kernel")
      .number("Rows", rows_)
      .number("Finishers", finishers())
      .number("Copies", copies)
      .number("Slots", slots_)
      .number("SlotBytes", slotBytes_)
      .number("Window", std::min(roundUp(inFlight, slotBytes_) / slotBytes_, slots_))
      .number("ReduceBytes", reduceBytes_)
      .number("Records", records_);
  Config(k.text, k.name + "Embed")
      .type("Y", t)
      .type("W", cudaType(embed_->operand(1)->type.dtype))
      .number("Groups",
              embed_->operand(5) ? embed_->operand(5)->type.shape.back().constant().value_or(0) : 0)
      .number("D", embed_->result()->type.shape.back().constant().value_or(0))
      .flag("Position", embed_->operand(2));
  Config(k.text, k.name + "Attention")
      .type("X", t)
      .number("HeadDim", headDim_)
      .number("Heads", heads_)
      .number("Splits", splits_);
  for (auto [i, form] : llvm::enumerate(forms_))
    k.text += linearText(k.name + "Linear" + std::to_string(i), form);
  llvm::raw_string_ostream os(k.text);
  const std::string layout = "persistent::Layout<" + k.name + "Kernel>";
  os << "static_assert(" << layout << "::bytes == " << shared_ << " && " << layout
     << "::threads == " << threads_ << " && persistent::warps == " << warps
     << " && persistent::unitRows == " << unitRows << " && persistent::maxBlocks == " << maxBlocks
     << ");\n"
     << "extern \"C\" __global__ void __launch_bounds__(" << threads_ << ", 1) " << k.name
     << "(const persistent::Record *records, int count) {\n"
     << "#if __CUDA_ARCH__ >= 900\n  extern __shared__ uint4 dynamicShared[];\n"
     << "  persistent::run<" << k.name << "Kernel>(\n      dynamicShared, records, count,\n"
     << "      [](auto &block, const persistent::Record &stage) {\n"
     << "        switch (stage.low(persistent::Kind)) {\n"
     << "        case 0:\n          return tile::embedStage<" << k.name
     << "Embed>(block, stage);\n        case 1:\n          return tile::attentionStage<" << k.name
     << "Attention>(block, stage);\n";
  for (size_t i = 0; i < forms_.size(); ++i) {
    if (i + 1 < forms_.size())
      os << "        case " << 2 + i << ":\n";
    else
      os << "        default:\n";
    os << "          return tile::linearStage<" << k.name << "Linear" << i << ">(block, stage);\n";
  }
  os << "        }\n      },\n      [](const auto &block, const persistent::Record &stage) {\n"
     << "        if (stage.low(persistent::Kind) == 1)\n          tile::attentionPrefetch<"
     << k.name << "Attention>(block, stage);\n      });\n#endif\n}\n";
  os.flush();
  setKernel(std::move(k));
}

} // namespace gpt2c
