#include "frontend/checkpoint/Adapter.h"
#include "frontend/checkpoint/AdapterConfig.h"
#include "frontend/checkpoint/Safetensors.h"
#include "frontend/checkpoint/Weights.h"
#include "frontend/files/DecodeTensor.h"
#include "frontend/files/OnnxFile.h"
#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

#include <cstring>
#include <map>

namespace gpt2c {

namespace {

constexpr const char *weightsFile = "adapter_model.safetensors";
constexpr const char *pickledFile = "adapter_model.bin";

struct LowRank {
  std::optional<SafetensorsEntry> a, b;
  bool ofTable = false; ///< lora_embedding_A, lora_embedding_B
};

std::string shapeText(llvm::ArrayRef<int64_t> dims) {
  return "[" +
         llvm::join(llvm::map_range(dims, [](int64_t n) { return std::to_string(n); }), ", ") + "]";
}

llvm::Error invalid(const llvm::Twine &why) {
  return makeError(ExitCode::InvalidModel, "the adapter is not one of this model: " + why);
}

llvm::Error unsupported(const llvm::Twine &why) {
  return makeError(ExitCode::Unsupported,
                   "the adapter " + why +
                       ". Merge it with peft's merge_and_unload, save the result with "
                       "save_pretrained, and compile that folder");
}

/// to[i, j] = base[i, j] + scale * the product of left [rows, r] and right [r, columns].
Tensor sumOf(const Tensor &base, llvm::ArrayRef<double> left, llvm::ArrayRef<double> right,
             double scale, DType to) {
  Tensor sum(to, base.shape());
  const int64_t columns = base.dim(1), rank = int64_t(right.size()) / columns;
  forRanges(base.count(), [&](int64_t begin, int64_t end) {
    std::vector<double> row;
    for (int64_t at = begin; at < end; at += int64_t(row.size())) {
      const int64_t i = at / columns, first = at % columns;
      row.assign(size_t(std::min(columns - first, end - at)), 0);
      for (int64_t k = 0; k < rank; ++k) {
        const double factor = left[size_t(i * rank + k)] * scale;
        const double *from = right.data() + k * columns + first;
        for (size_t j = 0; j < row.size(); ++j)
          row[j] += factor * from[j];
      }
      std::vector<double> given(row.size());
      base.load(at, given);
      for (size_t j = 0; j < row.size(); ++j)
        row[j] += given[j];
      sum.store(at, row);
    }
  });
  return sum;
}

std::vector<double> transposed(llvm::ArrayRef<double> values, int64_t rows, int64_t columns) {
  std::vector<double> out(values.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      out[size_t(j * rows + i)] = values[size_t(i * columns + j)];
  return out;
}

class Merger {
public:
  Merger(const Decoder &decoder, ExternalFiles &files, AdapterConfig config,
         std::shared_ptr<const llvm::MemoryBuffer> bytes)
      : d_(decoder), files_(files), config_(std::move(config)), bytes_(std::move(bytes)) {}

  llvm::Error run(onnx::GraphProto &graph) {
    if (llvm::Error e = sortTensors())
      return e;
    if (low_.empty() && whole_.empty())
      return invalid("it has no tensors");
    if (d_.tied)
      for (const std::string &module :
           {d_.names->base + std::string(d_.names->tokens), std::string(d_.names->head)})
        if (low_.count(module) || whole_.count(module + ".weight"))
          return unsupported("changes '" + module +
                             "', where the table of tokens is the head, "
                             "too: it may mean one of them, or both");
    for (onnx::TensorProto &tensor : *graph.mutable_initializer())
      if (tensor.data_location() == onnx::TensorProto::EXTERNAL)
        if (llvm::Error e = change(tensor))
          return e;
    if (!low_.empty())
      return invalid("there is no weight for its '" + low_.begin()->first + ".lora_A'");
    if (!whole_.empty())
      return invalid("there is no tensor for its '" + whole_.begin()->first + "'");
    return llvm::Error::success();
  }

private:
  llvm::Error sortTensors() {
    auto entries = readSafetensors(bytes_->getBuffer(), weightsFile);
    if (!entries)
      return entries.takeError();
    for (SafetensorsEntry &entry : *entries) {
      llvm::StringRef name = entry.name;
      if (!entry.dtype)
        return unsupported("has '" + name + "' in the type " + entry.dtypeName);
      if (!name.consume_front("base_model.model."))
        return invalid("'" + name + "' does not begin with base_model.model.");
      const auto [module, part] =
          name.rsplit(name.ends_with(".weight") && name.contains(".lora_") ? ".lora_" : ".");
      if (part == "A.weight" || part == "lora_embedding_A")
        low_[module.str()].a = entry;
      else if (part == "B.weight" || part == "lora_embedding_B")
        low_[module.str()].b = entry;
      else if (name.contains("lora_") || (part != "weight" && part != "bias"))
        return unsupported("has '" + name + "', which is neither A nor B nor a whole weight");
      else
        whole_.emplace(ownName(name), entry);
      if (part.starts_with("lora_embedding_"))
        low_[module.str()].ofTable = true;
    }
    return llvm::Error::success();
  }

  /// Without the parts of a name that stand for PEFT's wrappers.
  static std::string ownName(llvm::StringRef name) {
    llvm::SmallVector<llvm::StringRef> parts;
    name.split(parts, '.');
    llvm::erase_if(parts, [](llvm::StringRef part) {
      return part == "base_layer" || part == "modules_to_save" || part == "original_module";
    });
    return llvm::join(parts, ".");
  }

  Tensor read(const SafetensorsEntry &entry) const {
    Tensor tensor(*entry.dtype, entry.shape);
    if (entry.bytes)
      std::memcpy(tensor.raw(), bytes_->getBufferStart() + entry.offset, entry.bytes);
    return tensor;
  }

  std::vector<double> values(const SafetensorsEntry &entry) const {
    const Tensor tensor = read(entry);
    std::vector<double> out(size_t(tensor.count()));
    tensor.load(0, out);
    return out;
  }

  bool isTable(llvm::StringRef module) const {
    return module == std::string(d_.names->base) + d_.names->tokens ||
           (d_.names->positions && module == std::string(d_.names->base) + d_.names->positions);
  }
  bool isHead(llvm::StringRef module) const { return module == d_.names->head; }

  llvm::Error change(onnx::TensorProto &tensor) {
    // Files of base models leave the front of names out.
    std::string name = tensor.name();
    if (!llvm::StringRef(name).starts_with(d_.names->base) &&
        !isHead(llvm::StringRef(name).rsplit('.').first))
      name = d_.names->base + name;
    const auto [module, part] = llvm::StringRef(name).rsplit('.');
    auto low = part == "weight" ? low_.find(module.str()) : low_.end();
    auto whole = whole_.find(name);
    if (whole != whole_.end()) {
      if (llvm::Error e = takeWhole(tensor, name, module, whole->second))
        return e;
      whole_.erase(whole); // what A and B are added to: tables that change are saved, too
    }
    if (part != "weight")
      return llvm::Error::success();
    auto changes = config_.changes(module);
    if (!changes)
      return changes.takeError();
    if (low == low_.end())
      return *changes && tensor.dims_size() == 2
                 ? invalid("adapter_config.json has it change '" + module +
                           "', for which there are no tensors")
                 : llvm::Error::success();
    if (!*changes)
      return invalid("it has A and B for '" + module +
                     "', which is none of the modules that adapter_config.json has it change");
    llvm::Error e = add(tensor, module, low->second);
    low_.erase(low);
    return e;
  }

  llvm::Error takeWhole(onnx::TensorProto &tensor, llvm::StringRef name, llvm::StringRef module,
                        const SafetensorsEntry &entry) {
    const bool isBias = name.ends_with(".bias") && config_.bias != AdapterConfig::Bias::None;
    if (!config_.saves(module) && !isBias && !isTable(module) && !isHead(module))
      return invalid("it has '" + name + "', which adapter_config.json does not have it save");
    const llvm::SmallVector<int64_t> shape(tensor.dims().begin(), tensor.dims().end());
    if (llvm::ArrayRef<int64_t>(entry.shape) != llvm::ArrayRef<int64_t>(shape))
      return invalid("its '" + name + "' is " + shapeText(entry.shape) + ", the model's " +
                     shapeText(shape) +
                     "; where tokens were added, config.json and weights have "
                     "to be those behind that");
    return put(tensor, read(entry).cast(d_.dtype));
  }

  llvm::Error add(onnx::TensorProto &tensor, llvm::StringRef module, const LowRank &low) {
    auto base = decodeTensor(tensor, nullptr, &files_);
    if (!base)
      return base.takeError();
    auto rank = config_.rankOf(module);
    auto scale = config_.scaleOf(module);
    if (!rank || !scale)
      return llvm::joinErrors(rank.takeError(), scale.takeError());
    if (!low.a || !low.b)
      return invalid("of A and B for '" + module + "' there is one alone");
    if (low.ofTable != isTable(module))
      return invalid("what it has for '" + module + "' is " +
                     (low.ofTable ? "for a table of embeddings" : "for no table of embeddings"));
    const bool inputsFirst = low.ofTable || (d_.inputsFirst && !isHead(module));
    const int64_t rows = base->dim(0), columns = base->dim(-1);
    const int64_t in = inputsFirst ? rows : columns, out = inputsFirst ? columns : rows;
    for (auto [entry, shape] : {std::pair(&*low.a, std::array<int64_t, 2>{*rank, in}),
                                {&*low.b, std::array<int64_t, 2>{out, *rank}}})
      if (base->rank() != 2 || llvm::ArrayRef<int64_t>(entry->shape) != llvm::ArrayRef(shape))
        return invalid("'" + entry->name + "' is " + shapeText(entry->shape) + " where " +
                       shapeText(shape) + " is expected");
    std::vector<double> left = values(*low.b), right = values(*low.a);
    if (inputsFirst) {
      std::swap(left, right);
      left = transposed(left, *rank, in);
      right = transposed(right, out, *rank);
    }
    return put(tensor, sumOf(*base, left, right, *scale, d_.dtype));
  }

  llvm::Error put(onnx::TensorProto &tensor, const Tensor &value) {
    tensor.clear_external_data();
    tensor.clear_data_location();
    tensor.set_data_type(toOnnxType(value.dtype()));
    tensor.set_raw_data(value.raw(), value.bytes());
    return llvm::Error::success();
  }

  const Decoder &d_;
  ExternalFiles &files_;
  AdapterConfig config_;
  std::shared_ptr<const llvm::MemoryBuffer> bytes_;
  std::map<std::string, LowRank> low_;            // by module; what is merged goes
  std::map<std::string, SafetensorsEntry> whole_; // by tensor
};

} // namespace

llvm::Error mergeAdapter(onnx::ModelProto &graph, const Decoder &decoder, ExternalFiles &files,
                         const std::string &folder, ExternalFiles::Opened opened) {
  const std::string path = inFolder(folder, adapterConfigFile);
  auto text = readFile(path);
  if (!text)
    return text.takeError();
  auto config = AdapterConfig::parse((*text)->getBuffer(), path);
  if (!config)
    return config.takeError();
  if (!llvm::sys::fs::exists(inFolder(folder, weightsFile)))
    return llvm::sys::fs::exists(inFolder(folder, pickledFile))
               ? unsupported("has its tensors in " + llvm::StringRef(pickledFile) +
                             ", which is not read")
               : makeError(ExitCode::Io, "'" + folder + "' has no " + weightsFile);
  ExternalFiles own(folder, std::move(opened));
  auto bytes = own.open(weightsFile);
  if (!bytes)
    return bytes.takeError();
  return Merger(decoder, files, std::move(*config), std::move(*bytes)).run(*graph.mutable_graph());
}

} // namespace gpt2c
