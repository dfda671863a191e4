#include "frontend/checkpoint/DecoderGraph.h"
#include "frontend/checkpoint/BlockWeights.h"
#include "frontend/checkpoint/GraphWriter.h"
#include "frontend/checkpoint/PackedWeights.h"
#include "frontend/files/DecodeTensor.h"
#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <map>

namespace gpt2c {

namespace {

using Name = GraphWriter::Name;

/// How config.json calls activations.
struct ActivationRow {
  const char *name, *op;
  std::vector<GraphWriter::Attr> attrs;
};

const ActivationRow *activationOf(llvm::StringRef name) {
  static const ActivationRow rows[] = {
      {"gelu", "Gelu", {}},
      {"gelu_fast", "Gelu", {{"approximate", "tanh"}}},
      {"gelu_new", "Gelu", {{"approximate", "tanh"}}},
      {"gelu_pytorch_tanh", "Gelu", {{"approximate", "tanh"}}},
      {"quick_gelu", "Swish", {{"alpha", 1.702}}},
      {"relu", "Relu", {}},
      {"silu", "Swish", {}},
      {"swish", "Swish", {}},
  };
  auto row = llvm::find_if(rows, [&](const ActivationRow &r) { return r.name == name; });
  return row == std::end(rows) ? nullptr : row;
}

/// Three of them, and how many there are.
std::string listed(llvm::ArrayRef<std::string> names, llvm::StringRef between) {
  constexpr size_t most = 3;
  std::string text = llvm::join(names.take_front(most), between);
  return names.size() > most
             ? text + between.str() + "and " + std::to_string(names.size() - most) + " more"
             : text;
}

class GraphBuilder {
public:
  GraphBuilder(const Decoder &decoder, const CheckpointWeights &weights, ExternalFiles &files)
      : d_(decoder), weights_(weights), files_(files),
        activation_(activationOf(decoder.activation)) {
    if (weights.find(std::string(d_.names->base) + d_.names->tokens + ".weight"))
      base_ = d_.names->base;
  }

  llvm::Expected<onnx::ModelProto> run() {
    if (!activation_)
      return makeError(ExitCode::Unsupported, "the activation '" + d_.activation +
                                                  "' of config.json is not known. Export the model "
                                                  "to ONNX and compile that");
    Name x = embedding();
    positionTerms();
    for (size_t i = 0; i < d_.layers.size() && problems_.size() < mostProblems; ++i)
      x = layer(x, i);
    x = logits(norm(x, base_, d_.names->norm));
    if (!problems_.empty())
      return makeError(ExitCode::InvalidModel,
                       "config.json and the weights are not of one model: " +
                           listed(problems_, "; "));
    if (!unsupported_.empty())
      return makeError(ExitCode::Unsupported, listed(unsupported_, "; "));
    if (llvm::Error e = checkAllRead())
      return e;
    return g_.finish(d_.family, "input_ids", x, "logits");
  }

private:
  static constexpr size_t mostProblems = 64;

  // Weights.

  /// In the type of the graph; `name` with ".weight" or ".bias".
  Name weight(const std::string &name, llvm::ArrayRef<int64_t> shape) {
    const CheckpointWeights::Weight *found = weights_.find(name);
    Name &read = read_[name];
    if (!read.empty())
      return read;
    read = name;
    if (!found) {
      problems_.push_back("there is no tensor '" + name + "'");
      return name;
    }
    const SafetensorsEntry &entry = found->entry;
    auto text = [](llvm::ArrayRef<int64_t> dims) {
      return "[" +
             llvm::join(llvm::map_range(dims, [](int64_t n) { return std::to_string(n); }), ", ") +
             "]";
    };
    if (llvm::ArrayRef<int64_t>(entry.shape) != shape)
      problems_.push_back("'" + name + "' is " + text(entry.shape) + " where " + text(shape) +
                          " is expected");
    if (!entry.dtype) {
      unsupported_.push_back("'" + name + "' is of type " + entry.dtypeName +
                             "; weights are read in fp32, fp16 and bf16");
      return name;
    }
    g_.external(name, *entry.dtype, entry.shape, found->file, entry.offset, entry.bytes);
    if (*entry.dtype != d_.dtype)
      read = g_.cast(name, d_.dtype);
    return read;
  }

  std::string inLayer(size_t i, const char *module) const {
    auto [before, behind] = llvm::StringRef(d_.names->layers).split("{}");
    return base_ + before.str() + std::to_string(i) + behind.str() + module;
  }

  /// x W^T + b
  Name linear(const Name &x, const std::string &module, int64_t in, int64_t out, bool bias) {
    g_.setPart(module);
    if (d_.packing && weights_.find(module + ".qweight"))
      return packedLinear(x, module, in, out, bias);
    if (d_.packing && weights_.find(module + blockScales))
      return blockLinear(x, module, in, out, bias);
    Name w = d_.inputsFirst ? weight(module + ".weight", {in, out})
                            : g_.op("Transpose", {weight(module + ".weight", {out, in})},
                                    {{"perm", std::vector<int64_t>{1, 0}}});
    Name y = g_.op("MatMul", {x, w});
    return bias ? g_.op("Add", {y, weight(module + ".bias", {out})}) : y;
  }

  /// The same of weights in a few bits. Files of some tools hold a bias for each, be it 0.
  Name packedLinear(const Name &x, const std::string &module, int64_t in, int64_t out, bool bias) {
    auto w = unpackWeights(weights_, files_, module, in, out, *d_.packing,
                           [&](const std::string &name) { read_[name] = name; });
    if (!w) {
      note(w.takeError());
      return x;
    }
    const int64_t groups = in / w->group;
    Name q = g_.bytes(module + ".weight", DType::U8, {out, in}, w->q),
         zeros = g_.bytes(module + ".zeros", DType::U8, {out, groups}, w->zeros),
         scales = g_.floats(w->scales, {out, groups});
    Name wide = dequantised({q, scales, zeros}, w->group),
         columns = g_.op("Transpose", {wide}, {{"perm", std::vector<int64_t>{1, 0}}}),
         y = g_.op("MatMul", {inOrder(x, w->inputs), columns});
    bias |= weights_.find(module + ".bias") != nullptr;
    return bias ? g_.op("Add", {y, weight(module + ".bias", {out})}) : y;
  }

  /// The same of weights in fp8, whose bytes stay in their file.
  Name blockLinear(const Name &x, const std::string &module, int64_t in, int64_t out, bool bias) {
    auto w = readBlockWeights(weights_, files_, module, in, out, *d_.packing,
                              [&](const std::string &name) { read_[name] = name; });
    if (!w) {
      note(w.takeError());
      return x;
    }
    const SafetensorsEntry &entry = w->weight->entry;
    const Name q = module + ".weight";
    g_.external(q, DType::F8E4M3, entry.shape, w->weight->file, entry.offset, entry.bytes);
    Name scales = g_.floats(w->scales, {out, in / w->group}),
         wide = dequantised({q, scales}, w->group);
    Name y =
        g_.op("MatMul", {x, g_.op("Transpose", {wide}, {{"perm", std::vector<int64_t>{1, 0}}})});
    return bias ? g_.op("Add", {y, weight(module + ".bias", {out})}) : y;
  }

  /// Of elements, scales and maybe zero points of groups along the last axis.
  Name dequantised(llvm::ArrayRef<Name> inputs, int64_t group) {
    std::vector<GraphWriter::Attr> attrs{{"axis", int64_t(1)}, {"block_size", group}};
    if (d_.dtype != DType::F32)
      attrs.push_back({"output_dtype", int64_t(toOnnxType(d_.dtype))});
    return g_.op("DequantizeLinear", inputs, attrs);
  }

  void note(llvm::Error error) {
    llvm::handleAllErrors(std::move(error), [&](const CodedError &e) {
      (e.code() == ExitCode::Unsupported ? unsupported_ : problems_).push_back(e.message());
    });
  }

  /// The columns of x in another order, which products of one input share; empty: x.
  Name inOrder(const Name &x, const std::vector<int64_t> &order) {
    if (order.empty())
      return x;
    auto [known, added] = orders_.try_emplace({x, order});
    if (added)
      known->second = g_.op("Gather", {x, g_.order(order)}, {{"axis", int64_t(2)}});
    return known->second;
  }

  /// Over the last axis, of `size` elements.
  Name norm(const Name &x, const std::string &module, int64_t size) {
    g_.setPart(module);
    Name gain = weight(module + ".weight", {size});
    const std::vector<GraphWriter::Attr> attrs{{"axis", int64_t(-1)}, {"epsilon", d_.epsilon}};
    if (d_.norm == NormKind::Layer)
      return g_.op("LayerNormalization", {x, gain, weight(module + ".bias", {size})}, attrs);
    if (!d_.gainPlusOne)
      return g_.op("RMSNormalization", {x, gain}, attrs);
    if (d_.dtype == DType::F32)
      return g_.op("RMSNormalization", {x, g_.op("Add", {gain, g_.number(1, DType::F32)})}, attrs);
    gain = g_.op("Add", {g_.cast(gain, DType::F32), g_.number(1, DType::F32)});
    return g_.cast(g_.op("RMSNormalization", {g_.cast(x, DType::F32), gain}, attrs), d_.dtype);
  }
  Name norm(const Name &x, const std::string &before, const char *module) {
    return norm(x, before + module, d_.width);
  }

  // Positions.

  Name embedding() {
    const std::string module = base_ + d_.names->tokens;
    g_.setPart(module);
    Name table = weight(module + ".weight", {d_.vocabulary, d_.width});
    Name x = g_.op("Gather", {table, "input_ids"}, {{"axis", int64_t(0)}});
    if (d_.tokenScale != 1)
      x = g_.op("Mul", {x, g_.number(d_.tokenScale, d_.dtype)});
    g_.setPart("positions");
    Name seq = g_.op("Shape", {"input_ids"}, {{"start", int64_t(1)}, {"end", int64_t(2)}});
    positions_ = g_.op("Range", {g_.integer(0), g_.op("Squeeze", {seq}), g_.integer(1)});
    if (!d_.positions)
      return x;
    const std::string rows = base_ + d_.names->positions;
    g_.setPart(rows);
    Name learned = weight(rows + ".weight", {d_.positions, d_.width});
    return g_.op("Add", {x, g_.op("Gather", {learned, positions_}, {{"axis", int64_t(0)}})});
  }

  /// Cosines and sines of each rotation, [1, seq, r].
  void positionTerms() {
    for (const Decoder::Rope &rope : d_.ropes) {
      g_.setPart("rotary_emb");
      const auto pairs = int64_t(rope.frequencies.size());
      Name rows = g_.op("Unsqueeze", {g_.cast(positions_, DType::F32), g_.ints({0, 2})});
      Name angles = g_.op("Mul", {rows, g_.floats(rope.frequencies, {1, 1, pairs})});
      std::pair<Name, Name> tables{g_.op("Cos", {angles}), g_.op("Sin", {angles})};
      if (d_.dtype != DType::F32)
        tables = {g_.cast(tables.first, d_.dtype), g_.cast(tables.second, d_.dtype)};
      tables_.push_back(std::move(tables));
    }
  }

  /// Whether a query, by row, sees a key: itself and the `window` - 1 in front of it.
  const Name &windowMask(int64_t window) {
    auto [known, added] = masks_.try_emplace(window);
    if (added) {
      g_.setPart("window");
      Name query = g_.op("Unsqueeze", {positions_, g_.ints({1})});
      Name key = g_.op("Unsqueeze", {positions_, g_.ints({0})});
      Name first = g_.op("Sub", {query, g_.integer(window)});
      known->second =
          g_.op("And", {g_.op("LessOrEqual", {key, query}), g_.op("Greater", {key, first})});
    }
    return known->second;
  }

  // Layers.

  Name layer(const Name &x, size_t i) {
    const WeightNames &names = *d_.names;
    Name a = attention(norm(x, inLayer(i, names.inputNorm), d_.width), i);
    if (d_.normsBehind)
      a = norm(a, inLayer(i, names.attentionNorm), d_.width);
    auto mlpOf = [&](const Name &in) {
      Name y = mlp(norm(in, inLayer(i, names.mlpNorm), d_.width), i);
      return d_.normsBehind ? norm(y, inLayer(i, names.mlpOutNorm), d_.width) : y;
    };
    if (d_.parallel) {
      Name m = mlpOf(x);
      g_.setPart(inLayer(i, "sum"));
      return g_.op("Add", {g_.op("Add", {m, a}), x});
    }
    g_.setPart(inLayer(i, "sum"));
    Name y = g_.op("Add", {x, a}), m = mlpOf(y);
    g_.setPart(inLayer(i, "sum"));
    return g_.op("Add", {y, m});
  }

  struct Projections {
    Name q, k, v; // [batch, seq, heads * headDim]
  };

  Projections project(const Name &x, size_t i) {
    const WeightNames &names = *d_.names;
    const int64_t queries = d_.heads * d_.headDim, keys = d_.keyHeads * d_.headDim;
    if (d_.qkv == Decoder::Qkv::Apart) {
      Name q = headNorm(linear(x, inLayer(i, names.q), d_.width, queries, d_.qkvBias), i,
                        names.queryNorm, d_.heads);
      Name k = headNorm(linear(x, inLayer(i, names.k), d_.width, keys, d_.qkvBias), i,
                        names.keyNorm, d_.keyHeads);
      return {q, k, linear(x, inLayer(i, names.v), d_.width, keys, d_.qkvBias)};
    }
    Name all = linear(x, inLayer(i, names.qkv), d_.width, queries + 2 * keys, d_.qkvBias);
    if (d_.qkv == Decoder::Qkv::Joined) {
      auto parts =
          g_.ops("Split", 3, {all, g_.ints({queries, keys, keys})}, {{"axis", int64_t(2)}});
      return {parts[0], parts[1], parts[2]};
    }
    Name byHead = g_.op("Reshape", {all, g_.ints({0, 0, d_.heads, 3 * d_.headDim})});
    auto parts = g_.ops("Split", 3, {byHead, g_.ints({d_.headDim, d_.headDim, d_.headDim})},
                        {{"axis", int64_t(3)}});
    auto joined = [&](const Name &part) {
      return g_.op("Reshape", {part, g_.ints({0, 0, queries})});
    };
    return {joined(parts[0]), joined(parts[1]), joined(parts[2])};
  }

  /// Where there are norms of heads.
  Name headNorm(const Name &x, size_t i, const char *name, int64_t heads) {
    if (!d_.headNorms)
      return x;
    const std::string module = inLayer(i, name);
    g_.setPart(module);
    Name split = g_.op("Reshape", {x, g_.ints({0, 0, heads, d_.headDim})});
    return g_.op("Reshape", {norm(split, module, d_.headDim), g_.ints({0, 0, heads * d_.headDim})});
  }

  Name rotated(const Name &x, size_t rope, int64_t heads) {
    const auto pairs = int64_t(d_.ropes[rope].frequencies.size());
    const auto &[cos, sin] = tables_[rope];
    return g_.op("RotaryEmbedding", {x, cos, sin},
                 {{"num_heads", heads}, {"rotary_embedding_dim", 2 * pairs}});
  }

  Name attention(const Name &x, size_t i) {
    const Decoder::Layer &layer = d_.layers[i];
    auto [q, k, v] = project(x, i);
    const std::string out = inLayer(i, d_.names->out);
    const Name mask = layer.window ? windowMask(layer.window) : "";
    g_.setPart(llvm::StringRef(out).rsplit('.').first);
    if (!d_.ropes.empty()) {
      q = rotated(q, layer.rope, d_.heads);
      k = rotated(k, layer.rope, d_.keyHeads);
    }
    std::vector<GraphWriter::Attr> attrs{{"q_num_heads", d_.heads},
                                         {"kv_num_heads", d_.keyHeads},
                                         {"scale", layer.scale},
                                         {"softcap", d_.scoreCap},
                                         {"softmax_precision", int64_t(onnx::TensorProto::FLOAT)}};
    std::vector<Name> inputs{q, k, v};
    if (layer.window)
      inputs.push_back(mask);
    else
      attrs.push_back({"is_causal", int64_t(1)});
    return linear(g_.op("Attention", inputs, attrs), out, d_.heads * d_.headDim, d_.width,
                  d_.outBias);
  }

  Name activated(const Name &x) { return g_.op(activation_->op, {x}, activation_->attrs); }

  Name mlp(const Name &x, size_t i) {
    const WeightNames &names = *d_.names;
    Name up, active;
    if (d_.gateUpJoined) {
      Name both = linear(x, inLayer(i, names.gateUp), d_.width, 2 * d_.hidden, d_.mlpBias);
      auto parts =
          g_.ops("Split", 2, {both, g_.ints({d_.hidden, d_.hidden})}, {{"axis", int64_t(2)}});
      active = activated(parts[0]), up = parts[1];
    } else if (d_.gated) {
      active = activated(linear(x, inLayer(i, names.gate), d_.width, d_.hidden, d_.mlpBias));
      up = linear(x, inLayer(i, names.up), d_.width, d_.hidden, d_.mlpBias);
    } else {
      active = activated(linear(x, inLayer(i, names.up), d_.width, d_.hidden, d_.mlpBias));
    }
    if (!up.empty())
      active = g_.op("Mul", {active, up});
    return linear(active, inLayer(i, names.down), d_.hidden, d_.width, d_.mlpBias);
  }

  /// Of the head, or of the table of tokens, [vocabulary, width] both.
  Name logits(const Name &x) {
    const std::string module = d_.tied ? base_ + d_.names->tokens : d_.names->head;
    g_.setPart(d_.names->head);
    Name w = weight(module + ".weight", {d_.vocabulary, d_.width});
    Name y = g_.op("MatMul", {x, g_.op("Transpose", {w}, {{"perm", std::vector<int64_t>{1, 0}}})});
    if (d_.logitCap == 0)
      return y;
    Name ratio = g_.op("Div", {y, g_.number(d_.logitCap, d_.dtype)});
    return g_.op("Mul", {g_.op("Tanh", {ratio}), g_.number(d_.logitCap, d_.dtype)});
  }

  /// Weights that nobody reads are another model's. Older files hold masks and frequencies, too,
  /// and a tied head.
  llvm::Error checkAllRead() const {
    std::vector<std::string> left = weights_.names();
    llvm::erase_if(left, [&](llvm::StringRef name) {
      if (read_.contains(name))
        return true;
      for (const char *end : {".attn.bias", ".attn.masked_bias", ".attention.bias",
                              ".attention.masked_bias", "rotary_emb.inv_freq"})
        if (name.ends_with(end))
          return true;
      return d_.tied && name == std::string(d_.names->head) + ".weight";
    });
    if (left.empty())
      return llvm::Error::success();
    return makeError(ExitCode::Unsupported,
                     "config.json does not say what these weights are for: '" +
                         listed(left, "', '") + "'. Export the model to ONNX and compile that");
  }

  const Decoder &d_;
  const CheckpointWeights &weights_;
  ExternalFiles &files_;
  const ActivationRow *activation_;
  GraphWriter g_;
  std::string base_;
  Name positions_;                                               // 0, 1, .. seq - 1
  std::vector<std::pair<Name, Name>> tables_;                    // of each rotation
  std::map<int64_t, Name> masks_;                                // by window
  std::map<std::pair<Name, std::vector<int64_t>>, Name> orders_; // of columns of a value
  llvm::StringMap<Name> read_; // a weight, in the type of the graph
  std::vector<std::string> problems_, unsupported_;
};

} // namespace

llvm::Expected<onnx::ModelProto>
decoderGraph(const Decoder &decoder, const CheckpointWeights &weights, ExternalFiles &files) {
  return GraphBuilder(decoder, weights, files).run();
}

} // namespace gpt2c
