// Forms of attention, rotary embedding and RMS norm that the importer refuses: by name of the
// attribute or input, as unsupported (exit code 4) or as invalid (3).
#include "frontend/Import.h"
#include "ir/Error.h"
#include "tests/unit/frontend/OnnxGraph.h"

#include <gtest/gtest.h>

using namespace gpt2c;
using namespace gpt2c::test;

constexpr const char *ms = "com.microsoft";

namespace {

/// One node of an operator whose inputs are graph inputs; a test changes it before it is imported.
class Refused {
public:
  Refused(const std::string &op, int64_t opset, const std::string &domain = "") : g_(opset) {
    if (!domain.empty())
      g_.import(domain, 1);
    node_ = &g_.node(op, {}, {"y"}, "the_node", domain);
    g_.output("y");
  }

  Refused &in(std::initializer_list<int64_t> shape, int type = onnx::TensorProto::FLOAT) {
    std::string name = "x" + std::to_string(node_->input_size());
    g_.input(name, shape, type);
    node_->add_input(name);
    return *this;
  }
  Refused &ids(std::initializer_list<int64_t> shape) { return in(shape, onnx::TensorProto::INT64); }
  Refused &lengths(std::initializer_list<int64_t> shape) {
    return in(shape, onnx::TensorProto::INT32);
  }
  Refused &none(int count = 1) {
    while (count--)
      node_->add_input("");
    return *this;
  }
  Refused &out() {
    std::string name = "z" + std::to_string(node_->output_size());
    node_->add_output(name);
    g_.output(name);
    return *this;
  }
  Refused &set(const std::string &name, int64_t v) {
    setInt(*node_, name, v);
    return *this;
  }
  Refused &setReal(const std::string &name, float v) {
    setFloat(*node_, name, v);
    return *this;
  }
  Refused &setText(const std::string &name, const std::string &v) {
    auto *a = node_->add_attribute();
    a->set_name(name);
    a->set_type(onnx::AttributeProto::STRING);
    a->set_s(v);
    return *this;
  }

  void expect(ExitCode code, const char *part) {
    SCOPED_TRACE(part);
    auto module = importOnnxBytes(g_.bytes(), "test.onnx");
    ASSERT_FALSE(bool(module)) << "the import should fail";
    std::string text;
    llvm::raw_string_ostream os(text);
    EXPECT_EQ(printError(module.takeError(), os), code) << text;
    EXPECT_NE(text.find("the_node"), std::string::npos) << text;
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  void unsupported(const char *part) { expect(ExitCode::Unsupported, part); }
  void invalid(const char *part) { expect(ExitCode::InvalidModel, part); }
  void imports() {
    auto module = importOnnxBytes(g_.bytes(), "test.onnx");
    EXPECT_TRUE(bool(module)) << llvm::toString(module.takeError());
  }

private:
  OnnxGraph g_;
  onnx::NodeProto *node_;
};

} // namespace

/// 4 query heads of 8 share 2 key heads; new keys in inputs of their own, after 4 cached ones.
static Refused groupQuery(int64_t shared = 2) {
  Refused r("GroupQueryAttention", 17, ms);
  r.in({2, 1, 32}).in({2, 1, 16}).in({2, 1, 16}).in({2, 2, 4, 8}).in({2, 2, 4, 8});
  r.lengths({2}).lengths({}).set("num_heads", 4).set("kv_num_heads", shared);
  return r;
}

TEST(AttentionErrors, GroupQueryAttention) {
  groupQuery().imports();
  groupQuery().set("qk_output", 1).unsupported("qk_output");
  groupQuery().set("sliding_window_cache", 1).unsupported("sliding_window_cache");
  groupQuery().set("kv_cache_bit_width", 8).unsupported("kv_cache_bit_width");
  groupQuery().setText("k_quant_type", "PER_TENSOR").unsupported("k_quant_type PER_TENSOR");
  groupQuery().setText("v_quant_type", "NONE").imports();
  groupQuery().out().out().out().unsupported("output_qk");
  groupQuery().none(5).in({1}).unsupported("k_scale");
  groupQuery().none(7).in({8}).in({8}).imports();
  groupQuery().none(7).in({8}).invalid("q_norm_weight and k_norm_weight");
  groupQuery().none(7).in({9}).in({9}).invalid("rms_norm");
  groupQuery().none(9).lengths({2}).unsupported("query_seqlens");
  groupQuery().set("causal", 0).set("local_window_size", 4).invalid("local_window_size");
  groupQuery().set("do_rotary", 1).invalid("input 7");
  groupQuery().in({9, 5}).in({9, 5}).set("do_rotary", 1).invalid("5 pairs for heads of 8");
  groupQuery().in({9}).in({9}).set("do_rotary", 1).invalid("rank 2");
  groupQuery(3).invalid("4 query heads cannot share 3");
  groupQuery(0).invalid("4 query heads cannot share 0");
  groupQuery(4).invalid("heads of 8, not 4");
}

TEST(AttentionErrors, GroupQueryAttentionOfOtherShapes) {
  auto packed = [](int64_t width) {
    Refused r("GroupQueryAttention", 17, ms);
    r.in({2, 1, width}).none(4).lengths({2}).lengths({});
    r.set("num_heads", 4).set("kv_num_heads", 2);
    return r;
  };
  packed(64).imports();
  packed(60).invalid("60 does not split into 8 heads");
  packed(-1).unsupported("the query's width");
  Refused keyAlone("GroupQueryAttention", 17, ms);
  keyAlone.in({2, 1, 32}).in({2, 1, 16}).none(3).lengths({2}).lengths({});
  keyAlone.set("num_heads", 4).set("kv_num_heads", 2).invalid("key and value");
  Refused pastAlone("GroupQueryAttention", 17, ms);
  pastAlone.in({2, 1, 64}).none(2).in({2, 2, 4, 8}).none().lengths({2}).lengths({});
  pastAlone.set("num_heads", 4).set("kv_num_heads", 2).invalid("past_key and past_value");
  Refused noLengths("GroupQueryAttention", 17, ms);
  noLengths.in({2, 1, 64}).set("num_heads", 4).set("kv_num_heads", 2).invalid("input 5");
}

static Refused multiHead() {
  Refused r("MultiHeadAttention", 17, ms);
  r.set("num_heads", 2);
  return r;
}

TEST(AttentionErrors, MultiHeadAttention) {
  multiHead().in({2, 3, 8}).in({2, 5, 8}).in({2, 5, 8}).imports();
  multiHead().in({2, 3, 8}).in({2, 5, 8}).invalid("without a value");
  multiHead().in({2, 3, 8}).in({2, 5, 2, 2, 4}).in({2, 5, 8}).invalid("beside a value");
  multiHead().in({2, 3, 2, 3, 4}).in({2, 5, 8}).invalid("rank 5");
  multiHead().in({2, 3, 2, 2, 4}).invalid("must be 3, not 2");
  multiHead().in({2, 8}).in({2, 5, 8}).in({2, 5, 8}).invalid("a query of rank 2");
  multiHead().in({2, 3, 9}).in({2, 5, 9}).in({2, 5, 9}).invalid("9 does not split into 2 heads");
  multiHead().in({2, 3, 8}).in({2, 2, 5, 4}).in({2, 2, 5, 4}).in({24}).unsupported("a bias");
  multiHead().in({2, 3, 8}).in({2, 5, 8}).in({2, 5, 8}).none().lengths({8}).unsupported(
      "a mask of length 8");
  multiHead().in({2, 3, 8}).in({2, 5, 8}).in({2, 5, 8}).none(5).lengths({1}).unsupported(
      "past_sequence_length");
  multiHead().in({2, 3, 8}).in({2, 5, 8}).in({2, 5, 8}).none(6).lengths({2, 1, 9}).unsupported(
      "cache_indirection");
  multiHead().in({2, 3, 8}).in({2, 5, 8}).in({2, 5, 8}).out().out().out().unsupported("scores");
}

TEST(AttentionErrors, HeadsOfOtherRanks) {
  Refused none("MultiHeadAttention", 17, ms);
  none.in({2, 3, 8}).in({2, 5, 8}).in({5, 8}).set("num_heads", 2).invalid("of rank 2");
  Refused noHeads("MultiHeadAttention", 17, ms);
  noHeads.in({2, 3, 8}).in({2, 8}).in({8}).set("num_heads", 0).invalid("0 heads");
  Refused key("GroupQueryAttention", 17, ms);
  key.in({2, 1, 32}).in({16}).in({16}).none(2).lengths({2}).lengths({});
  key.set("num_heads", 4).set("kv_num_heads", 2).invalid("of rank 1");
}

TEST(AttentionErrors, RotaryEmbedding) {
  auto x4 = [] {
    Refused r("RotaryEmbedding", 23);
    r.in({2, 2, 3, 8});
    return r;
  };
  x4().in({9, 4}).in({9, 4}).ids({2, 3}).imports();
  x4().in({9, 3}).in({9, 3}).ids({2, 3}).invalid("3 pairs where 8");
  x4().in({9, 4}).in({9, 4}).ids({2, 3}).set("rotary_embedding_dim", 4).invalid("4 pairs where 4");
  x4().in({9, 4}).in({9, 4}).invalid("rank 3, not 2");
  x4().in({2, 3, 4}).in({2, 3, 4}).ids({2, 3}).invalid("rank 2, not 3");
  x4().in({9, 4}).in({9, 4}).ids({3}).invalid("position_ids must have rank 2");
  Refused packed("RotaryEmbedding", 23);
  packed.in({2, 3, 16}).in({9, 4}).in({9, 4}).ids({2, 3}).invalid("num_heads");
  Refused old("RotaryEmbedding", 22);
  old.in({2, 2, 3, 8}).in({9, 4}).in({9, 4}).ids({2, 3}).unsupported("from opset 23 on");
}

TEST(AttentionErrors, ContribRotaryEmbedding) {
  auto packed = [] {
    Refused r("RotaryEmbedding", 17, ms);
    r.in({2, 3, 16}).ids({2, 3}).in({9, 4}).in({9, 4});
    return r;
  };
  packed().imports();
  packed().setReal("scale", 0.5).unsupported("scale");
  packed().set("is_packed_batching", 1).unsupported("is_packed_batching");
  packed().set("rotary_embedding_dim", 8).invalid("num_heads");
  Refused odd("RotaryEmbedding", 17, ms);
  odd.in({2, 3, 16}).ids({2, 3}).in({9, 3}).in({9, 3}).invalid("not made of heads");
  Refused ids("RotaryEmbedding", 17, ms);
  ids.in({2, 3, 16}).ids({2, 3, 1}).in({9, 4}).in({9, 4}).invalid("rank 1 or 2, not 3");
}

TEST(AttentionErrors, Attention) {
  auto heads = [](int64_t opset) {
    Refused r("Attention", opset);
    r.in({2, 4, 3, 8}).in({2, 2, 5, 8}).in({2, 2, 5, 8});
    return r;
  };
  heads(23).imports();
  heads(23).set("qk_matmul_output_mode", 4).invalid("qk_matmul_output_mode");
  heads(23).none(3).ids({2}).invalid("nonpad_kv_seqlen");
  heads(24).none(3).ids({2}).imports();
  heads(24).none(3).ids({2, 1}).invalid("nonpad_kv_seqlen must have rank 1");
  heads(24).none(3).ids({2}).out().invalid("nonpad_kv_seqlen together with past");
  heads(23).none().in({2, 2, 5, 8}).invalid("past_key and past_value");
  heads(23).setReal("scale", -1).invalid("scale is negative");
}

TEST(AttentionErrors, RmsNorm) {
  Refused stash("RMSNormalization", 23);
  stash.in({2, 3}).in({3}).set("stash_type", 11).unsupported("stash_type 11");
  Refused axis("RMSNormalization", 23);
  axis.in({2, 3}).in({3}).set("axis", 2).invalid("axis 2");
  Refused mean("SkipSimplifiedLayerNormalization", 17, ms);
  mean.in({2, 3}).in({2, 3}).in({3}).out().unsupported("mean and inverse deviation");
}
