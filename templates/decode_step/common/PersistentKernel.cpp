// Sizes and source of a persistent kernel.
#include "templates/decode_step/common/PersistentBuilder.h"
#include "templates/decode_step/common/PersistentConfig.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

using namespace persistent;

/// The most bytes of a row of x whose weights are in a slot.
static constexpr int64_t chunkBytes = 2048;

static int64_t roundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
/// The distance of rows in a slot: that many bytes more than a multiple of 128 as four lanes read
/// of a row, so that the lanes of several rows read from different banks.
int64_t PersistentBuilder::slotPitch(Element weights) const {
  const int64_t bytes = chunk_ * byteSize(weights), read = 64 * byteSize(weights) / byteSize(type_);
  int64_t pitch = roundUp(bytes, 16);
  while (pitch % 128 != read)
    pitch += 16;
  return pitch;
}

llvm::Error PersistentBuilder::chooseSizes() {
  const int64_t bytes = byteSize(type_), vector = 16 / bytes;
  int64_t least = linears_[0].form.K;
  for (const Product &l : linears_)
    least = std::min<int64_t>(least, l.form.K);
  auto fits = [&](int64_t chunk) {
    return chunk * bytes <= chunkBytes && llvm::all_of(linears_, [&](const Product &l) {
             return l.form.K % chunk == 0 && chunk % vector == 0 &&
                    chunk * byteSize(l.form.W) % 16 == 0;
           });
  };
  for (chunk_ = least; chunk_ > 0 && !fits(chunk_);)
    --chunk_;
  if (chunk_ == 0)
    return unsupported("the widths of its linears have no common divisor whose rows are whole "
                       "vectors of 16 bytes");
  for (const Product &l : linears_)
    slotBytes_ = std::max(slotBytes_, roundUp(unitRows * slotPitch(l.form.W), 128));
  reduceBytes_ = roundUp(std::max<int64_t>(warps * rows_ * (mostRoundUnits * unitRows + 2),
                                           (warps + 1) * (headDim_ + 2)) *
                             4,
                         128);
  const int64_t recordCount = int64_t(records_.size()) + 1; // and that of the step
  int64_t fixed = 2 * reduceBytes_ + recordCount * recordWords * 8;
  slots_ = (sharedBytes() - fixed) / (slotBytes_ + 16);
  for (Product &l : linears_) {
    const int64_t chunks = l.form.K / chunk_, most = std::min<int64_t>(slots_, 32) / chunks;
    if (fixed > sharedBytes() || most < 1)
      return unsupported("its stages and inputs leave no shared memory for weights");
    int &tiles = l.form.Tiles;
    tiles =
        int(std::min<int64_t>({(l.units + processors() - 1) / processors(), mostRoundUnits, most}));
    if (l.form.Logits && tiles == 3) // those of a row are a power of two, for the choice
      tiles = most >= 4 ? 4 : 2;
    l.form.Chunk = int(chunk_);
    auto known = llvm::find(forms_, l.form);
    Stage &stage = l.form.Logits ? std::get<LogitsRecord<HostWords>>(records_[l.step]).stage
                                 : std::get<LinearRecord<HostWords>>(records_[l.step]).stage;
    stage.kind = pair(LinearStage + (known - forms_.begin()), tiles);
    stage.chunk = pair(chunk_ * byteSize(l.form.W), slotPitch(l.form.W));
    if (known == forms_.end())
      forms_.push_back(l.form);
  }
  shared_ = slots_ * (slotBytes_ + 16) + fixed;
  threads_ = 32 * (warps + finishers() + 1);
  return llvm::Error::success();
}

int PersistentBuilder::groups() const {
  const Value *scales = embed_->operand(ops::Embed::TokenScale);
  return scales ? int(scales->type.shape.back().constant().value_or(0)) : 0;
}

void PersistentBuilder::emitKernel() {
  KernelSource k;
  k.name = b_.pool().nextKernelName("persistent");
  k.headers = {"templates/decode_step/stages/stages.cuh", "templates/decode_step/stages/tokens.cuh",
               "templates/decode_step/stages/attention.cuh",
               "templates/decode_step/stages/linear.cuh"};
  k.params = {"records", "count"};
  const BlocksConfig kernel = {
      .Rows = int(rows_),
      .Finishers = int(finishers()),
      .Copies = int(copies),
      .Slots = int(slots_),
      .SlotBytes = int(slotBytes_),
      .Window = int(std::min(roundUp(inFlight, slotBytes_) / slotBytes_, slots_)),
      .ReduceBytes = int(reduceBytes_),
      .Records = int(records_.size())};
  const EmbedStageConfig embed = {
      .Y = elementOf(type_),
      .W = elementOf(embed_->operand(ops::Embed::Tokens)->type.dtype),
      .Groups = groups(),
      .D = int(embed_->result()->type.shape.back().constant().value_or(0)),
      .Position = embed_->operand(ops::Embed::Positions) != nullptr};
  const AttentionStageConfig attention = {.X = elementOf(type_),
                                          .HeadDim = int(headDim_),
                                          .Heads = int(heads_),
                                          .Splits = int(splits_)};
  k.text = define(k.name + "Kernel", kernel) + define(k.name + "Embed", embed) +
           define(k.name + "Attention", attention);
  for (auto [i, form] : llvm::enumerate(forms_))
    k.text += define(k.name + "Linear" + std::to_string(i), form);
  llvm::raw_string_ostream os(k.text);
  const std::string kernelOf = "persistent::BlocksOf<" + k.name + "Kernel>",
                    embedOf = "persistent::EmbedStageOf<" + k.name + "Embed>",
                    attentionOf = "persistent::AttentionStageOf<" + k.name + "Attention>",
                    layout = "persistent::Layout<" + kernelOf + ">";
  os << "static_assert(" << layout << "::bytes == " << shared_ << " && " << layout
     << "::threads == " << threads_ << ");\n"
     << "extern \"C\" __global__ void __launch_bounds__(" << threads_ << ", 1) " << k.name
     << "(const persistent::Record *records, int count) {\n"
     << "#if __CUDA_ARCH__ >= 900\n  extern __shared__ uint4 dynamicShared[];\n"
     << "  persistent::run<" << kernelOf << ">(\n      dynamicShared, records, count,\n"
     << "      [](auto &block, const persistent::Record &stage) {\n"
     << "        switch (stage.as<persistent::Stage>().kind.low()) {\n"
     << "        case persistent::EmbedStage:\n          return tile::embedStage<" << embedOf
     << ">(block, stage);\n        case persistent::AttentionStage:\n"
     << "          return tile::attentionStage<" << attentionOf << ">(block, stage);\n";
  for (size_t i = 0; i < forms_.size(); ++i) {
    if (i + 1 < forms_.size())
      os << "        case persistent::LinearStage + " << i << ":\n";
    else
      os << "        default:\n";
    os << "          return tile::linearStage<persistent::LinearStageOf<" << k.name << "Linear" << i
       << ">>(block, stage);\n";
  }
  os << "        }\n      },\n      [](const auto &block, const persistent::Record &stage) {\n"
     << "        if (stage.as<persistent::Stage>().kind.low() == persistent::AttentionStage)\n     "
        "     "
     << "tile::attentionPrefetch<" << attentionOf << ">(block, stage);\n      });\n#endif\n}\n";
  os.flush();
  setKernel(std::move(k));
}

} // namespace gpt2c
