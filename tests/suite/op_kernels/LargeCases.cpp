#include "LargeCases.h"

#include "ir/Executor.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <cstring>
#include <random>

namespace gpt2c::suite {

namespace {

class Cases {
public:
  /// Inputs of the next case, from a standard normal distribution or from [low, high).
  Cases &normal(DType type, llvm::ArrayRef<int64_t> shape) {
    Tensor t(DType::F32, shape);
    std::normal_distribution<float> next;
    for (int64_t i = 0; i < t.count(); ++i)
      t.data<float>()[i] = next(random_);
    inputs_.push_back({t.cast(type)});
    return *this;
  }
  Cases &integers(DType type, llvm::ArrayRef<int64_t> shape, int64_t low, int64_t high) {
    Tensor t(DType::I64, shape);
    std::uniform_int_distribution<int64_t> next(low, high - 1);
    for (int64_t i = 0; i < t.count(); ++i)
      t.data<int64_t>()[i] = next(random_);
    inputs_.push_back({t.cast(type)});
    return *this;
  }
  /// Scales that give rows of `k` products of int8 about the deviation 1.
  Cases &scales(llvm::ArrayRef<int64_t> shape, double k) {
    Tensor t(DType::F32, shape);
    std::uniform_real_distribution<float> next(0.5F, 1.5F);
    for (int64_t i = 0; i < t.count(); ++i)
      t.data<float>()[i] = next(random_) / (73 * std::sqrt(k));
    inputs_.push_back({t});
    return *this;
  }
  Cases &int8(llvm::ArrayRef<int64_t> shape) { return integers(DType::I8, shape, -127, 128); }
  /// A KV state in int8 of one layer: the rows of a head, then their scales.
  Cases &int8State(int64_t batch, int64_t heads, int64_t context, int64_t d) {
    int8({1, 2, batch, heads, context, d + 4});
    std::uniform_real_distribution<float> next(0.005F, 0.015F);
    int8_t *head = inputs_.back().tensor.data<int8_t>();
    for (int64_t i = 0; i < 2 * batch * heads; ++i, head += context * (d + 4))
      for (int64_t j = 0; j < context; ++j) {
        const float scale = next(random_);
        std::memcpy(head + context * d + 4 * j, &scale, 4);
      }
    return *this;
  }
  Cases &constant(int64_t value) {
    inputs_.push_back({Tensor::scalar(value), true});
    return *this;
  }
  Cases &constant(Tensor value) {
    inputs_.push_back({std::move(value), true});
    return *this;
  }
  Cases &absent() {
    inputs_.push_back({});
    return *this;
  }

  /// Ends a case.
  void add(OpCode op, const std::string &name, llvm::ArrayRef<NamedAttr> attrs = {},
           double tolerance = 1e-4) {
    OpCase c;
    c.op = opInfo(op).mnemonic.str();
    c.name = "large " + name;
    c.attrs = attrs;
    c.inputs = std::exchange(inputs_, {});
    c.tolerance = tolerance;
    CaseFunction f = llvm::cantFail(makeFunction(c, "reference"));
    std::vector<Tensor> results =
        llvm::cantFail(Executor(*f.function, {.float64 = true}).run(f.arguments));
    for (auto [i, t] : llvm::enumerate(results))
      c.outputs.push_back(t.cast(f.op->result(i)->type.dtype));
    cases_.push_back(std::move(c));
  }

  std::vector<OpCase> take() { return std::move(cases_); }

private:
  std::mt19937 random_{1};
  std::vector<CaseInput> inputs_;
  std::vector<OpCase> cases_;
};

constexpr double half = 2e-3;

Attr number(int64_t v) { return v; }
Attr list(std::initializer_list<int64_t> values) { return Dims(values.begin(), values.end()); }

void addMoves(Cases &c) {
  c.normal(DType::F32, {7, 33, 65}).normal(DType::F32, {33, 1}).add(OpCode::Add, "broadcast");
  c.normal(DType::F16, {4, 50, 3, 17})
      .add(OpCode::Transpose, "heads", {{"perm", list({0, 2, 1, 3})}});
  c.normal(DType::F32, {3, 70, 90}).add(OpCode::Transpose, "matrices", {{"perm", list({0, 2, 1})}});
  c.normal(DType::F32, {2, 60, 3, 20})
      .normal(DType::F32, {2, 60, 5, 20})
      .add(OpCode::Concat, "middle", {{"axis", number(2)}});
  c.normal(DType::F32, {40, 90})
      .add(OpCode::Slice, "backward",
           {{"starts", list({-1, 80})},
            {"ends", list({-41, 10})},
            {"axes", list({0, 1})},
            {"steps", list({-1, -7})}});
  c.normal(DType::F16, {500, 24})
      .integers(DType::I64, {6, 30}, -500, 500)
      .add(OpCode::Gather, "table", {{"axis", number(0)}});
  c.normal(DType::F32, {3, 80, 90}).constant(5).add(OpCode::Trilu, "band", {{"upper", false}});
}

void addLines(Cases &c) {
  const OpCode reductions[] = {OpCode::ReduceSum, OpCode::ReduceMean, OpCode::ReduceMax,
                               OpCode::ReduceMin};
  for (OpCode op : reductions) {
    c.normal(DType::F32, {5, 3000}).add(op, "rows", {{"axes", list({1})}}, 1e-3);
    c.normal(DType::F16, {6, 300, 7})
        .add(op, "middle", {{"axes", list({1})}, {"keepdims", false}}, 3e-3);
    c.integers(DType::I64, {40, 20, 9}, -1000, 1000)
        .add(op, "outer and inner", {{"axes", list({0, 2})}});
  }
  c.normal(DType::F32, {3, 5000}).add(OpCode::ArgMax, "rows", {{"axis", number(1)}});
  c.integers(DType::I32, {700, 6}, 0, 20)
      .add(OpCode::ArgMax, "last of equals", {{"axis", number(0)}, {"select_last_index", true}});
  c.normal(DType::F32, {9, 1500}).add(OpCode::Softmax, "rows");
  c.normal(DType::F16, {2, 333, 10}).add(OpCode::Softmax, "middle", {{"axis", number(1)}}, half);
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true}) {
      std::vector<NamedAttr> attrs{{"exclusive", exclusive}, {"reverse", reverse}};
      std::string name =
          std::string(exclusive ? "exclusive" : "inclusive") + (reverse ? ", reverse" : "");
      c.integers(DType::I64, {5, 100, 3}, -50, 50).constant(1).add(OpCode::CumSum, name, attrs);
      c.normal(DType::F32, {6, 77}).constant(-1).add(OpCode::CumSum, name + ", float", attrs);
    }
  c.normal(DType::F32, {4, 6, 500})
      .normal(DType::F32, {6, 500})
      .normal(DType::F32, {6, 500})
      .add(OpCode::LayerNorm, "two axes", {{"axis", number(1)}});
  c.normal(DType::F32, {5, 3000})
      .normal(DType::F32, {3000})
      .normal(DType::F32, {3000})
      .add(OpCode::LayerNorm, "wide");
  c.normal(DType::F16, {70, 200}).normal(DType::F16, {200}).add(OpCode::RmsNorm, "half", {}, half);
}

void addProducts(Cases &c) {
  c.normal(DType::F32, {2, 70, 130})
      .normal(DType::F32, {2, 130, 90})
      .add(OpCode::MatMul, "batch", {}, 1e-3);
  c.normal(DType::F16, {3, 1, 100, 33})
      .normal(DType::F16, {2, 33, 65})
      .add(OpCode::MatMul, "broadcast batch", {}, 1e-2);
  c.normal(DType::F32, {4, 3, 100})
      .normal(DType::F32, {100})
      .add(OpCode::MatMul, "vector", {}, 1e-3);
  c.normal(DType::F64, {20, 30}).normal(DType::F64, {30, 70}).add(OpCode::MatMul, "double");
  c.integers(DType::I32, {65, 17}, -99, 99)
      .integers(DType::I32, {17, 66}, -99, 99)
      .add(OpCode::MatMul, "integers");
}

/// A prompt's packed rows, of which the last heads stay; a step's.
void addRope(Cases &c) {
  for (DType type : {DType::F16, DType::F32})
    for (const auto &[interleaved, toHalves] :
         {std::pair(false, false), std::pair(true, false), std::pair(true, true)}) {
      const double tolerance = type == DType::F16 ? half : 1e-4;
      c.normal(type, {2, 70, 12 * 64}).integers(DType::I32, {2}, 0, 30);
      c.normal(DType::F32, {100, 32}).normal(DType::F32, {100, 32});
      c.add(OpCode::Rope, "packed",
            {{"head_dim", number(64)},
             {"heads", number(10)},
             {"interleaved", interleaved},
             {"to_halves", toHalves}},
            tolerance);
      c.normal(type, {40, 1, 6 * 80}).integers(DType::I64, {40, 1}, -99, 100);
      c.normal(DType::F32, {100, 10}).normal(DType::F32, {100, 10});
      c.add(OpCode::Rope, "part",
            {{"head_dim", number(80)}, {"interleaved", interleaved}, {"to_halves", toHalves}},
            tolerance);
    }
  c.normal(DType::F16, {3, 40, 2 * 700}).add(OpCode::Gated, "half", {}, half);
  c.normal(DType::F32, {200, 2 * 1000})
      .add(OpCode::Gated, "tanh", {{"activation", std::string("gelu_tanh")}});
}

void addAttention(Cases &c) {
  for (bool causal : {false, true})
    for (DType type : {DType::F32, DType::F16})
      for (bool mask : {false, true}) {
        int64_t heads = 3, d = 40, batch = 2, seq = 45, past = 50;
        c.normal(type, {batch, seq, heads * d}).normal(type, {batch, seq, heads * d});
        c.normal(type, {batch, seq, heads * d});
        c.normal(type, {batch, heads, past, d}).normal(type, {batch, heads, past, d});
        if (mask)
          c.integers(DType::I64, {batch, past + seq}, 0, 2);
        std::string name = std::string(causal ? "causal" : "full") + (mask ? ", mask" : "") +
                           (type == DType::F16 ? ", half" : "");
        c.add(
            OpCode::Attention, name,
            {{"num_heads", number(heads)}, {"scale", 1 / std::sqrt(double(d))}, {"causal", causal}},
            type == DType::F16 ? half : 1e-4);
      }
  for (const std::vector<int64_t> &bias :
       {std::vector<int64_t>{2, 3, 45, 45}, {1, 3, 45, 45}, {2, 1, 1, 45}}) {
    c.normal(DType::F32, {2, 45, 120}).normal(DType::F32, {2, 45, 120});
    c.normal(DType::F32, {2, 45, 120}).absent().absent().absent().normal(DType::F32, bias);
    c.add(OpCode::Attention, "bias", {{"num_heads", number(3)}, {"scale", 0.15}, {"causal", true}},
          1e-4);
  }
  c.normal(DType::F32, {2, 5, 4 * 24}).normal(DType::F16, {3, 2, 4, 4, 128, 24});
  c.integers(DType::I32, {2}, 40, 120).integers(DType::I32, {2, 128}, 0, 2);
  c.add(OpCode::CachedAttention, "half state, mask",
        {{"layer", number(1)}, {"num_heads", number(4)}, {"scale", 0.2}}, half);
  // As many sequences as keep TMA busy.
  for (DType state : {DType::F16, DType::I8}) {
    const int64_t batch = 50, heads = 12, context = 72, d = 64;
    if (state == DType::I8)
      c.int8State(batch, heads, context, d);
    else
      c.normal(state, {1, 2, batch, heads, context, d});
    c.normal(DType::F16, {batch, 1, 3 * heads * d}).integers(DType::I32, {batch}, 0, context);
    c.add(OpCode::AppendAttention, state == DType::I8 ? "int8 state" : "half state",
          {{"layer", number(0)}, {"num_heads", number(heads)}, {"scale", 0.125}}, half);
  }
  // Prompts whose last tokens alone have queries.
  for (DType state : {DType::F16, DType::I8, DType::F32}) {
    const int64_t batch = 3, heads = 4, context = 200, d = 64, seq = 90;
    const DType type = state == DType::I8 ? DType::F16 : state;
    if (state == DType::I8)
      c.int8State(batch, heads, context, d);
    else
      c.normal(state, {1, 2, batch, heads, context, d});
    c.normal(type, {batch, seq, 3 * heads * d}).integers(DType::I32, {batch}, 0, context - seq);
    c.absent().integers(DType::I32, {batch}, 1, seq + 1);
    c.add(OpCode::AppendAttention, "last queries, " + dtypeName(state).str() + " state",
          {{"layer", number(0)}, {"num_heads", number(heads)}, {"scale", 0.125}},
          type == DType::F16 ? half : 1e-4);
  }
  // Eight heads share two or one: steps, prompts, prompts with one query each.
  for (DType state : {DType::F16, DType::I8, DType::F32})
    for (auto [shared, d] : {std::pair<int64_t, int64_t>{2, 64}, {1, 128}, {2, 20}})
      for (auto [seq, last] : {std::pair{1, false}, {3, false}, {70, false}, {70, true}}) {
        const int64_t batch = 3, heads = 8, context = 200;
        const DType type = state == DType::I8 ? DType::F16 : state;
        if (state == DType::I8)
          c.int8State(batch, shared, context, d);
        else
          c.normal(state, {1, 2, batch, shared, context, d});
        c.normal(type, {batch, seq, (heads + 2 * shared) * d});
        c.integers(DType::I32, {batch}, 0, context - seq);
        if (last)
          c.absent().integers(DType::I32, {batch}, 1, seq + 1);
        c.add(OpCode::AppendAttention,
              std::to_string(heads) + " heads share " + std::to_string(shared) + " of " +
                  std::to_string(d) + ", " + std::to_string(seq) + " tokens" +
                  (last ? ", last" : "") + ", " + dtypeName(state).str() + " state",
              {{"layer", number(0)}, {"num_heads", number(heads)}, {"scale", 0.125}},
              type == DType::F16 ? half : 1e-4);
      }
  c.normal(DType::F16, {2, 2, 3, 4, 64, 24})
      .normal(DType::F32, {2, 20, 96})
      .normal(DType::F32, {2, 20, 96});
  c.integers(DType::I64, {2}, 0, 44).add(OpCode::KvAppend, "rows", {{"layer", number(1)}}, half);
}

/// Rows of a warp, of a block, too long for registers; lengths that 16-byte accesses do not divide.
void addMaskedSoftmax(Cases &c) {
  for (auto [queries, keys] :
       {std::pair<int64_t, int64_t>{70, 70}, {33, 1024}, {5, 3000}, {3, 9001}, {2, 20000}})
    for (DType type : {DType::F32, DType::F16})
      for (unsigned kind = 0; kind < 4; ++kind) {
        const bool causal = kind % 2 != 0, masks = kind >= 2;
        c.normal(type, {2, 3, queries, keys});
        if (masks)
          c.integers(causal ? DType::I64 : DType::I32, {2, keys}, 0, 2)
              .normal(type, {2, 1, causal ? queries : 1, keys});
        std::string name = std::to_string(queries) + "x" + std::to_string(keys) +
                           (causal ? ", causal" : "") + (masks ? ", masks" : "") +
                           (type == DType::F16 ? ", half" : "");
        c.add(OpCode::MaskedSoftmax, name, {{"scale", 1.7}, {"causal", causal}},
              type == DType::F16 ? half : 1e-4);
      }
  c.normal(DType::F32, {3, 9000}).add(OpCode::Softmax, "long rows");
  c.normal(DType::F64, {2, 2, 9, 700}).add(OpCode::MaskedSoftmax, "double", {{"causal", true}});
}

/// Shapes of the kernels for few rows, for tiles, and of the ways around them.
void addInt8(Cases &c) {
  const NamedAttr gelu = {"activation", std::string("gelu_tanh")};
  // Weights alone, in one group and in groups.
  for (auto [m, k, groups] : {std::tuple<int64_t, int64_t, int64_t>{1, 768, 1},
                              {5, 768, 6},
                              {40, 1536, 1},
                              {64, 768, 12},
                              {70, 768, 1},
                              {3, 200, 1},
                              {20, 200, 5}})
    for (DType type : {DType::F16, DType::F32}) {
      c.normal(type, {m, k}).int8({130, k}).scales({130, groups}, k).absent();
      c.normal(type, {130}).normal(type, {m, 130});
      c.add(OpCode::QuantizedLinear,
            "weights " + std::to_string(m) + "x" + std::to_string(k) + ", " +
                std::to_string(groups) + (type == DType::F16 ? " groups, half" : " groups"),
            {gelu}, type == DType::F16 ? 4e-3 : 1e-4);
    }
  // Rows of int8, with one scale, in groups of 64, 128 and 96; rows of any length.
  for (auto [m, k, groups] : {std::tuple<int64_t, int64_t, int64_t>{200, 768, 1},
                              {130, 768, 12},
                              {100, 768, 6},
                              {40, 768, 8},
                              {30, 200, 1},
                              {9, 203, 1}}) {
    std::string size =
        std::to_string(m) + "x" + std::to_string(k) + ", " + std::to_string(groups) + " groups";
    c.int8({m, k}).int8({256, k}).scales({256, 1}, k).scales({m, groups}, 1);
    c.normal(DType::F16, {256}).normal(DType::F16, {m, 256});
    c.add(OpCode::QuantizedLinear, "rows " + size, {gelu, {"dtype", DType::F16}}, 4e-3);
    for (int64_t yGroup : {64, 128, 0}) {
      c.int8({m, k}).int8({256, k}).scales({256, 1}, k).scales({m, groups}, 1);
      c.normal(DType::F16, {256});
      // An element that lies between two integers may become either.
      c.add(OpCode::RequantizedLinear, "rows " + size + " to " + std::to_string(yGroup),
            {gelu, {"y_group", number(yGroup)}}, 4e-3);
    }
  }
  c.normal(DType::F16, {70, 768}).int8({130, 768}).scales({130, 1}, 768);
  c.add(OpCode::QuantizedLinear, "half rows quantised here", {{"x_group", number(128)}}, 4e-3);
  for (auto [m, k, xGroup, groups] : {std::tuple<int64_t, int64_t, int64_t, int64_t>{1, 768, 0, 1},
                                      {7, 768, 0, 1},
                                      {16, 3072, 128, 1},
                                      {3, 768, 64, 6},
                                      {8, 208, 0, 1},
                                      {2, 2304, 256, 18}}) {
    c.normal(DType::F16, {m, k}).int8({130, k}).scales({130, groups}, k).absent();
    c.normal(DType::F16, {130}).normal(DType::F16, {m, 130});
    c.add(OpCode::QuantizedLinear,
          std::to_string(m) + "x" + std::to_string(k) + " half rows quantised in groups of " +
              std::to_string(xGroup) + ", weights in " + std::to_string(groups),
          {gelu, {"x_group", number(xGroup)}}, 4e-3);
  }
  // A scale and a zero point that are given; sums with what a zero point of x adds.
  for (bool zero : {false, true}) {
    auto given = [&](float scale) -> Cases & {
      c.constant(Tensor::scalar(scale));
      return zero ? c.constant(Tensor::scalar<int8_t>(-50)) : c.absent();
    };
    const std::string name = zero ? "scale and zero point" : "scale";
    for (auto [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{200, 768, 768},
                           {5, 256, 768},
                           {40, 61, 768},
                           {9, 130, 203}}) {
      c.int8({m, k}).int8({n, k}).scales({n, 1}, k).constant(Tensor::scalar(0.0137F));
      c.normal(DType::F16, {n});
      given(0.02F);
      if (zero)
        c.integers(DType::I32, {n}, -9999, 9999);
      c.add(OpCode::RequantizedLinear,
            "rows " + std::to_string(m) + "x" + std::to_string(k) + " to one " + name, {gelu},
            4e-3);
    }
    c.normal(DType::F16, {70, 768}).normal(DType::F16, {768}).normal(DType::F16, {768});
    given(0.03F);
    c.add(OpCode::QuantizedLayerNorm, "one " + name, {}, 4e-3);
    for (auto [seq, state] : {std::pair<int64_t, DType>{1, DType::F16},
                              {70, DType::F16},
                              {1, DType::I8},
                              {70, DType::I8},
                              {70, DType::F32}}) {
      const DType type = state == DType::I8 ? DType::F16 : state;
      if (state == DType::I8)
        c.int8State(3, 4, 200, 64);
      else
        c.normal(state, {1, 2, 3, 4, 200, 64});
      c.normal(type, {3, seq, 3 * 256}).integers(DType::I32, {3}, 0, 200 - seq).absent();
      given(0.005F);
      c.add(OpCode::QuantizedAppendAttention,
            std::to_string(seq) + " queries, " + dtypeName(state).str() + " state, one " + name,
            {{"layer", number(0)}, {"num_heads", number(4)}, {"scale", 0.125}}, 4e-3);
    }
  }
  for (int64_t group : {0, 64}) {
    c.normal(DType::F16, {70, 768}).normal(DType::F16, {768}).normal(DType::F16, {768});
    c.add(OpCode::QuantizedLayerNorm, "groups of " + std::to_string(group),
          {{"group", number(group)}}, 4e-3);
  }
}

} // namespace

std::vector<OpCase> largeCases() {
  Cases c;
  addMoves(c);
  addLines(c);
  addProducts(c);
  addRope(c);
  addAttention(c);
  addMaskedSoftmax(c);
  addInt8(c);
  return c.take();
}

} // namespace gpt2c::suite
