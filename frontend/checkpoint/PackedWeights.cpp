#include "frontend/checkpoint/PackedWeights.h"

#include "ir/Error.h"
#include "ir/Tensor.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/Parallel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace gpt2c {

//===-- config.json ---------------------------------------------------------------------------===//

/// How weights were found, and which kernels run them elsewhere.
static llvm::ArrayRef<llvm::StringRef> packingKeysWithoutEffect() {
  static const llvm::StringRef keys[] = {
      "backend",
      "batch_size",
      "block_name_to_quantize",
      "cache_block_outputs",
      "damp_auto_increment",
      "damp_percent",
      "dataset",
      "desc_act",
      "do_fuse",
      "exllama_config",
      "fuse_max_seq_len",
      "is_marlin_format",
      "max_input_length",
      "meta",
      "model_file_base_name",
      "model_name_or_path",
      "model_seqlen",
      "modules_in_block_to_quantize",
      "modules_to_fuse",
      "modules_to_not_convert",
      "module_name_preceding_first_block",
      "mse",
      "pad_token_id",
      "quantizer",
      "static_groups",
      "sym",
      "tokenizer",
      "true_sequential",
      "use_cuda_fp16",
      "use_exllama",
      "zero_point",
  };
  return keys;
}

/// E4M3 with a scale for each block.
static std::optional<Packing> readFp8(Config &c) {
  Packing packing{.kind = Packing::Kind::Fp8, .bits = 8};
  if (c.text("fmt", "e4m3") != "e4m3")
    c.unsupported("fmt", "weights are read in e4m3");
  if (c.text("activation_scheme", "dynamic") != "dynamic")
    c.unsupported("activation_scheme", "scales of inputs that are given are not read");
  const std::vector<int64_t> sizes = c.counts("weight_block_size");
  if (sizes.size() != 2 || sizes[0] < 1 || sizes[1] < 1) {
    c.unsupported("weight_block_size",
                  "weights in fp8 are read with a scale for each block, as [128, 128]");
    return std::nullopt;
  }
  packing.rows = sizes[0];
  packing.group = sizes[1];
  static const llvm::StringRef withoutEffect[] = {"dequantize", "ignored_layers",
                                                  "modules_to_not_convert"};
  c.refuseUnreadBut(withoutEffect);
  return packing;
}

std::optional<Packing> readPacking(Config &config) {
  std::optional<Config> c = config.object("quantization_config");
  if (!c)
    return std::nullopt;
  Packing packing;
  const std::string method = c->text("quant_method", "");
  if (method == "fp8")
    return readFp8(*c);
  if (method != "gptq" && method != "awq") {
    c->unsupported("quant_method", "weights are read in fp32, fp16 and bf16, of a few bits as gptq "
                                   "and awq save them, and in blocks of fp8");
    return std::nullopt;
  }
  const bool gptq = method == "gptq";
  packing.kind = gptq ? Packing::Kind::Gptq : Packing::Kind::Awq;
  packing.bits = c->size("bits", 4);
  if (packing.bits != 4 && !(gptq && packing.bits == 8))
    c->unsupported("bits", gptq ? "weights of 4 and 8 bits are read" : "those of 4 bits are read");
  if (c->has("group_size") && !c->isWholeRow("group_size"))
    packing.group = c->size("group_size");
  if (gptq) {
    const std::string format = c->text("checkpoint_format", "gptq");
    packing.zerosLessOne = format == "gptq";
    if (format != "gptq" && format != "gptq_v2")
      c->unsupported("checkpoint_format", "files of gptq and gptq_v2 are read");
    if (c->text("pack_dtype", "int32") != "int32")
      c->unsupported("pack_dtype", "weights are read from words of int32");
    if (c->flag("is_marlin_format", false))
      c->unsupported("is_marlin_format", "files of gptq and gptq_v2 are read");
  } else if (const std::string version = c->text("version", "gemm");
             llvm::StringRef(version).lower() != "gemm") {
    c->unsupported("version", "files of the version gemm are read");
  }
  if (c->flag("lm_head", false))
    c->unsupported("lm_head", "the head is read in fp32, fp16 and bf16");
  c->refuseUnreadBut(packingKeysWithoutEffect());
  return packing;
}

//===-- tensors -------------------------------------------------------------------------------===//

namespace {

/// A tensor of the checkpoint with its bytes.
struct Stored {
  const CheckpointWeights::Weight *weight = nullptr;
  std::shared_ptr<const llvm::MemoryBuffer> file;

  const char *bytes() const { return file->getBufferStart() + weight->entry.offset; }
  uint32_t word(int64_t i) const {
    return llvm::support::endian::read32le(bytes() + i * int64_t(sizeof(uint32_t)));
  }
};

class Unpacker {
public:
  Unpacker(const CheckpointWeights &weights, ExternalFiles &files, const std::string &module,
           int64_t in, int64_t out, const Packing &packing,
           llvm::function_ref<void(const std::string &)> found)
      : weights_(weights), files_(files), module_(module), in_(in), out_(out), packing_(packing),
        perWord_(32 / packing.bits), found_(found) {}

  llvm::Expected<UnpackedWeights> run() {
    UnpackedWeights w;
    w.group = packing_.group ? packing_.group : in_;
    const bool gptq = packing_.kind == Packing::Kind::Gptq;
    if (w.group > in_ || in_ % w.group != 0 || out_ % perWord_ != 0 || in_ % perWord_ != 0)
      return makeError(ExitCode::Unsupported,
                       "'" + module_ + "' of " + llvm::Twine(in_) + " inputs and " +
                           llvm::Twine(out_) + " outputs does not divide into groups of " +
                           llvm::Twine(w.group) + " and words of " + llvm::Twine(perWord_));
    const int64_t groups = in_ / w.group;
    if (llvm::Error e = read("qweight", "I32",
                             gptq ? Shape{in_ / perWord_, out_} : Shape{in_, out_ / perWord_}, q_))
      return e;
    if (llvm::Error e = read("qzeros", "I32", {groups, out_ / perWord_}, zeros_))
      return e;
    if (llvm::Error e = read("scales", "", {groups, out_}, scales_))
      return e;
    auto groupOf = groupsOfInputs(w, groups);
    if (!groupOf)
      return groupOf.takeError();
    std::vector<int64_t> inputs = std::move(*groupOf);
    unpackScales(w, groups);
    if (llvm::Error e = unpackZeros(w, groups))
      return e;
    w.q.resize(size_t(in_ * out_));
    llvm::parallelFor(0, size_t(out_), [&](size_t n) {
      for (int64_t k = 0; k < in_; ++k)
        w.q[n * size_t(in_) + size_t(k)] = weight(inputs[size_t(k)], int64_t(n));
    });
    if (!llvm::is_sorted(inputs))
      w.inputs = std::move(inputs);
    return w;
  }

private:
  using Shape = llvm::SmallVector<int64_t, 2>;

  llvm::Error invalid(const llvm::Twine &why) const {
    return makeError(ExitCode::InvalidModel, "'" + module_ + why);
  }

  /// `type` empty: floats.
  llvm::Error read(const char *part, llvm::StringRef type, const Shape &shape, Stored &to) {
    const std::string name = module_ + "." + part;
    found_(name);
    to.weight = weights_.find(name);
    if (!to.weight)
      return invalid(llvm::Twine(".") + part + "' is missing");
    const SafetensorsEntry &entry = to.weight->entry;
    if (type.empty() ? !entry.dtype : entry.dtypeName != type)
      return invalid(llvm::Twine(".") + part + "' is of type " + entry.dtypeName + ", not of " +
                     (type.empty() ? "floats" : type));
    if (llvm::ArrayRef<int64_t>(entry.shape) != llvm::ArrayRef<int64_t>(shape))
      return invalid(llvm::Twine(".") + part + "' is not [" + llvm::Twine(shape[0]) +
                     (shape.size() > 1 ? ", " + std::to_string(shape[1]) : "") + "]");
    auto file = files_.open(to.weight->file);
    if (!file)
      return file.takeError();
    to.file = *file;
    if (entry.offset + entry.bytes > to.file->getBufferSize())
      return invalid(llvm::Twine(".") + part + "' lies outside of its file");
    return llvm::Error::success();
  }

  /// Inputs in the order of their groups, each of which has as many as the others.
  llvm::Expected<std::vector<int64_t>> groupsOfInputs(const UnpackedWeights &w, int64_t groups) {
    std::vector<int64_t> inputs(static_cast<size_t>(in_));
    std::iota(inputs.begin(), inputs.end(), 0);
    if (packing_.kind != Packing::Kind::Gptq || !weights_.find(module_ + ".g_idx"))
      return inputs;
    Stored index;
    if (llvm::Error e = read("g_idx", "I32", {in_}, index))
      return e;
    std::vector<int64_t> counts(static_cast<size_t>(groups));
    for (int64_t i = 0; i < in_; ++i) {
      const int64_t g = index.word(i);
      if (g >= groups)
        return invalid(".g_idx' names group " + llvm::Twine(g) + " of " + llvm::Twine(groups));
      ++counts[size_t(g)];
    }
    for (auto [g, count] : llvm::enumerate(counts))
      if (count != w.group)
        return makeError(ExitCode::Unsupported, "'" + module_ + ".g_idx' gives group " +
                                                    llvm::Twine(g) + " " + llvm::Twine(count) +
                                                    " inputs: groups of " + llvm::Twine(w.group) +
                                                    " each are read");
    llvm::stable_sort(inputs, [&](int64_t a, int64_t b) { return index.word(a) < index.word(b); });
    return inputs;
  }

  void unpackScales(UnpackedWeights &w, int64_t groups) const {
    const SafetensorsEntry &entry = scales_.weight->entry;
    Tensor all(*entry.dtype, {groups, out_});
    std::memcpy(all.raw(), scales_.bytes(), all.bytes());
    w.scales.resize(size_t(groups * out_));
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t n = 0; n < out_; ++n)
        w.scales[size_t(n * groups + g)] = float(all.asDouble(g * out_ + n));
  }

  llvm::Error unpackZeros(UnpackedWeights &w, int64_t groups) const {
    w.zeros.resize(size_t(groups * out_));
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t n = 0; n < out_; ++n) {
        const uint32_t zero = alongOutputs(zeros_, g, n) + (packing_.zerosLessOne ? 1 : 0);
        if (zero > UINT8_MAX)
          return makeError(ExitCode::Unsupported, "'" + module_ + ".qzeros' holds the zero point " +
                                                      llvm::Twine(zero) + ", beyond 8 bits");
        w.zeros[size_t(n * groups + g)] = uint8_t(zero);
      }
    return llvm::Error::success();
  }

  uint32_t field(uint32_t word, int64_t i) const {
    return word >> (i * packing_.bits) & ((1U << packing_.bits) - 1);
  }
  /// Of a row of words that hold `perWord_` outputs each.
  uint32_t alongOutputs(const Stored &t, int64_t row, int64_t n) const {
    static constexpr std::array<int64_t, 8> placeInAwq{0, 4, 1, 5, 2, 6, 3, 7};
    const int64_t i = n % perWord_;
    return field(t.word(row * (out_ / perWord_) + n / perWord_),
                 packing_.kind == Packing::Kind::Awq ? placeInAwq[size_t(i)] : i);
  }
  uint8_t weight(int64_t k, int64_t n) const {
    return uint8_t(packing_.kind == Packing::Kind::Awq
                       ? alongOutputs(q_, k, n)
                       : field(q_.word(k / perWord_ * out_ + n), k % perWord_));
  }

  const CheckpointWeights &weights_;
  ExternalFiles &files_;
  const std::string &module_;
  const int64_t in_, out_;
  const Packing &packing_;
  const int64_t perWord_;
  llvm::function_ref<void(const std::string &)> found_;
  Stored q_, zeros_, scales_;
};

} // namespace

llvm::Expected<UnpackedWeights> unpackWeights(const CheckpointWeights &weights,
                                              ExternalFiles &files, const std::string &module,
                                              int64_t in, int64_t out, const Packing &packing,
                                              llvm::function_ref<void(const std::string &)> found) {
  return Unpacker(weights, files, module, in, out, packing, found).run();
}

} // namespace gpt2c
