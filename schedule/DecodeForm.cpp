#include "schedule/DecodeForm.h"

#include "schedule/cost/StepCost.h"

#include "llvm/Support/CommandLine.h"

namespace gpt2c {

static llvm::cl::opt<bool>
    packedSteps("packed-steps",
                llvm::cl::desc("Persistent steps read weights in 12 bits where the plan has them, "
                               "also where that is estimated to be slower"),
                llvm::cl::Hidden);

DecodeProblem decodeProblem(const Function &decode, const DecoderShape *shape, int64_t rows,
                            const Function *extend, const Target &target, StepWish wish) {
  DecodeProblem p{
      .shape = shape, .rows = rows, .target = target, .asked = wish.asked, .stages = wish.stages};
  for (const auto &op : decode.ops())
    if (op->is(OpCode::Embed))
      p.type = op->result()->type.dtype;
    else if (op->is(OpCode::AllGather))
      p.ranks = op->intAttr("ranks");
  p.packs = wish.packs && shape && shape->ranks == 1 && shape->weights == DType::BF16;
  p.packsLast = wish.packsLast && shape && shape->ranks == 1 && shape->lastWeights == DType::BF16;
  p.packsAsked = wish.packsAsked;
  p.grouped = p.type == DType::BF16 || DecoderWeights::of(decode).grouped;
  if (!extend)
    return p;
  const Type &kv = extend->argument("kv")->type;
  p.paged = true;
  p.pageType = kv.dtype;
  p.pageTokens = kv.shape[4].constant().value_or(0);
  p.pageColumns = extend->argument("tables")->type.shape[1].constant().value_or(0);
  return p;
}

DecodeForms::DecodeForms(const Function *decode, DecodeMode mode, const Target &target,
                         bool optimised, bool packs)
    : mode_(mode), packs_(packs) {
  if (decode)
    weights_ = DecoderWeights::of(*decode);
  graph_ = mode == DecodeMode::Graph        ? "it is asked for"
           : mode == DecodeMode::Persistent ? ""
           : !decode                        ? "there is no @decode"
           : !target.has(stepClusters)      ? "the target is not sm_90a alone"
           : !optimised                     ? "launches or norms are not as they were measured"
                                            : "";
}

StepWish DecodeForms::of(int64_t rows, int64_t bytesOfLayer) const {
  return {.asked = areAsked(),
          .stages = areAsked() || (rows <= fasterRows && bytesOfLayer <= fasterBytes),
          .packs = packs_,
          .packsLast = packs_,
          .packsAsked = packedSteps};
}

bool isStepOfFloats(const DecodeProblem &step, const DecodeProblem &floats,
                    llvm::ArrayRef<const DecodeKernel *> kernels) {
  const DecodeKernel *own = leaderOf(kernels, step, step),
                     *taken = leaderOf(kernels, floats, floats);
  if (!taken || own == taken)
    return false;
  const std::optional<double> takes = taken->candidates(floats).front().microseconds;
  if (own) {
    // What has no estimate is in front of what has one, and takes less.
    const std::optional<double> ownTakes = own->candidates(step).front().microseconds;
    return !step.asked && ownTakes && (!takes || *takes < *ownTakes);
  }
  // Launches of few bits are what they are estimated to be where rows are vectors; where not they
  // are those of floats, beside which the kernel is no slower.
  const DecoderShape *s = step.shape;
  const bool vectors =
      s && s->width % 16 == 0 && s->hidden % 16 == 0 && s->heads * s->headDim % 16 == 0;
  return step.asked || !takes || !vectors ||
         *takes <= graphStepMicroseconds(*s, step.rows, step.target.rates);
}

/// Why each kernel does not run the step.
static std::string refusals(const DecodeProblem &p, llvm::ArrayRef<const DecodeKernel *> kernels) {
  std::string out;
  for (const DecodeKernel *k : kernels) {
    const std::string refusal = k->refusal(p);
    out += ("\n  no " + k->name() + ": " + (refusal.empty() ? k->slower(p) : refusal)).str();
  }
  return out;
}

/// `estimates`: with what it is estimated to take.
static std::string describe(const DecodeCandidate &form, bool estimates) {
  return estimates && form.microseconds
             ? llvm::formatv("{0} ({1:F0} us)", form.name, *form.microseconds).str()
             : form.name;
}

void printDecodeSteps(Function &decode, Function *widened, const DecodeForms &forms,
                      int64_t maxBatch, const Target &target,
                      llvm::ArrayRef<const DecodeKernel *> kernels, bool estimates,
                      llvm::raw_ostream &os) {
  auto shape = readDecoder(decode);
  std::optional<DecoderShape> wide;
  if (widened) {
    if (auto read = readDecoder(*widened))
      wide = std::move(*read);
    else
      llvm::consumeError(read.takeError());
  }
  os << "@decode: "
     << (shape ? describe(*shape) : "no chain of layers: " + llvm::toString(shape.takeError()))
     << "\n";
  if (!forms.graph().empty()) {
    os << "@generate: launches of @decode, " << forms.graph() << "\n";
    return;
  }
  bool clusters = true;
  int64_t covered = 0;
  for (int64_t rows : persistentRows) {
    if (covered >= maxBatch || !forms.mayBeFaster(rows, clusters))
      return;
    const DecodeProblem p =
        decodeProblem(decode, shape ? &*shape : nullptr, rows, nullptr, target, forms.of(rows));
    os << "@generate of up to " << rows << (rows == 1 ? " sequence: " : " sequences: ");
    const DecodeKernel *taken = leaderOf(kernels, p, p);
    std::string name = taken ? describe(taken->candidates(p).front(), estimates)
                             : "launches of @decode" + refusals(p, kernels);
    if (wide) {
      const DecodeProblem floats =
          decodeProblem(*widened, &*wide, rows, nullptr, target, forms.of(rows));
      if (isStepOfFloats(p, floats, kernels)) {
        taken = leaderOf(kernels, floats, floats);
        name = describe(taken->candidates(floats).front(), estimates) + " of @" + widened->name();
      }
    }
    os << name << "\n";
    if (!taken)
      return;
    clusters = taken->name() != "decode_stages";
    covered = rows;
  }
}

} // namespace gpt2c
