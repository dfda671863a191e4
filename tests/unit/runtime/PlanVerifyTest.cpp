#include "runtime/plan/PlanVerify.h"
#include "PlanSample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace gpt2c::rt {
namespace {

using sample::constant;
using sample::Sample;

/// What the verifier says of the sample after `change`; empty when nothing. The change applies to a
/// plan whose weights and sections are already in place, as a reader would find it.
std::string reasons(const std::function<void(Sample &, PlanSurroundings &)> &change) {
  Sample made;
  PlanSurroundings around;
  uint64_t offset = 0;
  for (size_t i = 0; i < made.contents.weights.size(); ++i) {
    made.meta().weights[i]->offset = offset;
    made.meta().weights[i]->bytes = made.contents.weights[i].size();
    offset += alignUp(made.contents.weights[i].size(), kWeightAlignment);
  }
  around.weightsBytes = offset;
  around.sections = {{SectionKind::Metadata, {}},
                     {SectionKind::Image, made.contents.images[0]},
                     {SectionKind::Image, made.contents.images[1]}};
  made.meta().images[0]->section = 1;
  made.meta().images[1]->section = 2;
  change(made, around);
  Issues issues;
  verifyPlan(made.meta(), around, issues);
  return issues.empty() ? "" : issues.text();
}

std::string reasons(const std::function<void(Sample &)> &change) {
  return reasons([&](Sample &made, PlanSurroundings &) { change(made); });
}

TEST(PlanVerify, AcceptsTheSample) {
  EXPECT_EQ(reasons([](Sample &) {}), "");
}

struct Damage {
  const char *name;
  std::function<void(Sample &)> change;
  const char *reason;
};

void addMap(plan::ArgT &arg, int64_t rows, int64_t columns, int boxRows) {
  arg.map = std::make_unique<plan::TensorMapT>();
  arg.map->rows = constant(rows);
  arg.map->columns = columns;
  arg.map->box_rows = boxRows;
}

TEST(PlanVerify, RefusesEachDefect) {
  using Meta = plan::PlanT;
  auto noMeta = [](const auto &change) {
    return [=](Sample &s) {
      Meta &m = s.meta();
      change(m);
    };
  };
  auto ranks = [&](int32_t tensor, const std::vector<int32_t> &heads) {
    return noMeta([=](Meta &m) {
      m.ranks.push_back(std::make_unique<plan::RanksT>());
      m.ranks[0]->tensor = tensor;
      m.ranks[0]->kv_heads = heads;
    });
  };
  // Weight 0 is a matrix of bf16 that weight 1 is, packed.
  auto packs = [&](auto change) {
    return noMeta([=](Meta &m) {
      plan::WeightT &of = *m.weights[0], &packed = *m.weights[1];
      of.dtype = plan::DType::BF16, of.shape = {2, 32}, of.offset = ~uint64_t(0xff), of.bytes = 128;
      of.packed = 1;
      packed.dtype = plan::DType::U8, packed.shape = {104}, packed.offset = 0, packed.bytes = 104;
      change(of, packed);
    });
  };
  auto inFunction = [](auto change) { return [=](Sample &s) { change(s.function()); }; };
  auto inStep = [](auto change) { return [=](Sample &s) { change(s.step()); }; };
  const Damage cases[] = {
      {"limit without a sum", inFunction([](plan::FunctionT &f) {
         f.limits.push_back(std::make_unique<plan::SumLimitT>());
       }),
       "limit 0: no sum"},
      {"arch unknown", inFunction([](plan::FunctionT &f) { f.archs = {"gfx90a"}; }),
       "architecture 'gfx90a' is unknown"},
      {"arch twice", inFunction([](plan::FunctionT &f) { f.archs = {"sm_90a", "sm_90a"}; }),
       "or that of other functions, too"},
      {"arch missing", noMeta([](Meta &m) {
         m.functions.push_back(std::make_unique<plan::FunctionT>(*m.functions[0]));
         m.functions[0]->archs = {"sm_90a"};
       }),
       "a list of architectures is missing"},
      {"image of no function", inFunction([](plan::FunctionT &f) { f.archs = {"sm_75"}; }),
       "no function is for"},
      {"vocab", noMeta([](Meta &m) { m.vocab_size = -1; }), "negative vocabulary"},
      {"eos", noMeta([](Meta &m) { m.eos_token = 11; }), "end-of-text token 11"},
      {"weight dtype", noMeta([](Meta &m) { m.weights[0]->dtype = plan::DType(99); }),
       "unknown dtype 99"},
      {"weight size", noMeta([](Meta &m) { m.weights[0]->shape[0] = 5; }), "shape and dtype need"},
      {"weight negative", noMeta([](Meta &m) { m.weights[0]->shape = {-4, -6}; }), "negative dim"},
      {"weight overflow", noMeta([](Meta &m) { m.weights[0]->shape = {INT64_MAX, INT64_MAX}; }),
       "exceeds 64 bits"},
      {"weight outside", noMeta([](Meta &m) { m.weights[0]->offset = 1 << 20; }),
       "outside the weights section"},
      {"weight wraps", noMeta([](Meta &m) { m.weights[0]->offset = UINT64_MAX - 255; }),
       "outside the weights section"},
      {"weight alignment", noMeta([](Meta &m) { m.weights[0]->offset = 16; }), "multiple of 256"},
      {"packed of none", packs([](auto &of, auto &) { of.packed = 99; }),
       "there is no weight 99 to make it of"},
      {"packed negative", packs([](auto &of, auto &) { of.packed = -2; }), "there is no weight -2"},
      {"packed of itself", packs([](auto &of, auto &) { of.packed = 0; }), "there is no weight 0"},
      {"packed of packed", packs([](auto &, auto &packed) { packed.packed = 0; }),
       "there is no weight 1"},
      {"packed floats", packs([](auto &of, auto &) { of.dtype = plan::DType::F16; }),
       "are none of a packed matrix"},
      {"packed rows", packs([](auto &of, auto &) { of.shape = {4, 16}; }),
       "are none of a packed matrix"},
      {"packed size", packs([](auto &, auto &packed) { packed.shape = {103}, packed.bytes = 103; }),
       "are none of a packed matrix"},
      {"packed offset", packs([](auto &of, auto &) { of.offset = 0; }),
       "are none of a packed matrix"},
      {"kv zero", noMeta([](Meta &m) { m.kv->heads = 0; }), "a size is below one"},
      {"kv token", noMeta([](Meta &m) { m.kv->bytes_per_token = 1; }), "bytes per token"},
      {"kv bytes", noMeta([](Meta &m) { m.kv->bytes = 1; }), "bytes contradict"},
      {"kv dtype", noMeta([](Meta &m) { m.kv->dtype = plan::DType::I64; }), "cannot hold keys"},
      {"kv missing", noMeta([](Meta &m) { m.kv.reset(); }), "without a KV plan"},
      {"ranks", ranks(1, {0}), "among 1 ranks has no number of ranks"},
      {"ranks many", ranks(2000, {0}), "has no number of ranks"},
      {"ranks heads", ranks(2, {0, 1, 0}), "does not say which heads"},
      {"ranks head", ranks(2, {0, 99}), "has a head that does not exist"},
      {"ranks lack", ranks(2, {0, -1}), "lacks a head"},
      {"ranks unknown", inFunction([](plan::FunctionT &f) { f.ranks = 2; }),
       "is for 2 ranks, of which the plan knows nothing"},
      {"part of none", noMeta([](Meta &m) {
         m.weight_parts.push_back(std::make_unique<plan::WeightPartT>());
         m.weight_parts[0]->weight = 99;
       }),
       "part 0 of weights is none of weight 99"},
      {"part for one", inStep([](plan::StepT &s) { s.args[0]->kind = plan::ArgKind::WeightPart; }),
       "a part of a weight in a function for one alone"},
      {"exchange for one",
       inStep([](plan::StepT &s) { s.args[0]->kind = plan::ArgKind::Exchange; }),
       "an exchange in a function for one alone"},
      {"golden none", noMeta([](Meta &m) { m.golden->prompts.clear(); }), "there is none"},
      {"golden tolerance", noMeta([](Meta &m) { m.golden->tolerance = 0; }), "no tolerance"},
      {"golden empty", noMeta([](Meta &m) { m.golden->prompts[0]->ids.clear(); }), "is empty"},
      {"golden id", noMeta([](Meta &m) { m.golden->prompts[0]->ids[1] = 11; }),
       "golden prompt 0: has a token outside the vocabulary"},
      {"golden length", noMeta([](Meta &m) { m.golden->prompts[0]->ids.resize(5000, 1); }),
       "longer than the context"},
      {"golden token", noMeta([](Meta &m) { m.golden->prompts[0]->rows[0]->top_ids[0] = -1; }),
       "without tokens of the vocabulary"},
      {"golden number",
       noMeta([](Meta &m) { m.golden->prompts[0]->rows[0]->projections[0] = NAN; }),
       "without finite numbers"},
      {"kernel name", noMeta([](Meta &m) { m.kernels[0]->name.clear(); }), "no valid name"},
      {"kernel source", noMeta([](Meta &m) { m.kernels[0]->source = 1; }), "unknown source 1"},
      {"kernel source < 0", noMeta([](Meta &m) { m.kernels[0]->source = -1; }), "source -1"},
      {"image source", noMeta([](Meta &m) { m.images[0]->source = 7; }), "unknown source 7"},
      {"image arch", noMeta([](Meta &m) { m.images[0]->arch = "gfx90a"; }), "unknown arch"},
      {"image kind", noMeta([](Meta &m) { m.images[0]->ptx = true; }), "unknown arch"},
      {"image section", noMeta([](Meta &m) { m.images[0]->section = 0; }), "holds no image"},
      {"image section range", noMeta([](Meta &m) { m.images[0]->section = 9; }), "holds no image"},
      {"image swapped",
       noMeta([](Meta &m) { std::swap(m.images[0]->section, m.images[1]->section); }),
       "shorter than an ELF header"},
      {"image unused", noMeta([](Meta &m) { m.images.pop_back(); }), "no image refers to it"},
      {"source without image",
       noMeta([](Meta &m) { m.sources.push_back(std::make_unique<plan::SourceT>()); }),
       "has no image"},
      {"function name", inFunction([](auto &f) { f.name.clear(); }), "has no name"},
      {"exported dtype", noMeta([](Meta &m) { m.exported_inputs[0]->dtype = plan::DType(50); }),
       "unknown dtype 50"},
      {"exported role", noMeta([](Meta &m) { m.exported_inputs[0]->role = plan::Role(50); }),
       "unknown role 50"},
      {"exported part", noMeta([](Meta &m) { m.exported_inputs[0]->part = plan::KvPart(50); }),
       "unknown part 50"},
      {"exported layer", noMeta([](Meta &m) { m.exported_outputs[0]->layer = 2; }),
       "'present.1.key': layer 2 does not exist"},
      {"exported without kv", noMeta([](Meta &m) { m.kv.reset(); }),
       "past and present tensors need a KV plan"},
      {"symbol name", inFunction([](auto &f) { f.symbols[1]->name = "batch"; }), "used twice"},
      {"symbol bounds", inFunction([](auto &f) { f.symbols[0]->min = 3; }), "invalid bounds"},
      {"symbol negative", inFunction([](auto &f) { f.symbols[0]->min = -1; }), "invalid bounds"},
      {"port dtype", inFunction([](auto &f) { f.inputs[0]->dtype = plan::DType::I64; }),
       "role Ids has dtype i64"},
      {"port rank", inFunction([](auto &f) { f.inputs[0]->shape.pop_back(); }), "rank 1"},
      {"port role", inFunction([](auto &f) { f.inputs[0]->role = plan::Role(50); }),
       "unknown role 50"},
      {"port exported", inFunction([](auto &f) { f.inputs[0]->exported_dtype = plan::DType(50); }),
       "unknown exported dtype 50"},
      {"port part", inFunction([](auto &f) { f.inputs[0]->part = plan::KvPart(9); }),
       "unknown part 9"},
      {"past layer", inFunction([](auto &f) {
         f.inputs[0]->role = plan::Role::PastTensor;
         f.inputs[0]->layer = 2;
       }),
       "layer 2 does not exist"},
      {"shape symbol", inFunction([](auto &f) { f.inputs[0]->shape[0]->code = {1, 9}; }),
       "symbol 9 of 2"},
      {"shape negative", inFunction([](auto &f) { f.inputs[0]->shape[0]->code = {0, -1}; }),
       "may reach [-1, -1]"},
      {"shape overflow", inFunction([](auto &f) { f.inputs[0]->shape[0]->code = {0, INT64_MAX}; }),
       "shape exceeds 64 bits"},
      {"buffer outside", inFunction([](auto &f) { f.buffers[0]->offset = 2048; }),
       "outside the arena"},
      {"buffer wraps", inFunction([](auto &f) { f.buffers[0]->offset = UINT64_MAX - 15; }),
       "outside the arena"},
      {"buffer alignment", inFunction([](auto &f) { f.buffers[0]->offset = 8; }), "multiple of 16"},
      {"buffer small", inFunction([](auto &f) { f.buffers[0]->bytes = 100; }),
       "largest shape needs 768 bytes of 100"},
      {"buffer life", inFunction([](auto &f) { f.buffers[0]->last_step = 1; }),
       "outside the function's steps"},
      {"step kernel", inStep([](auto &s) { s.kernel = 1; }), "unknown kernel 1"},
      {"step mode", inStep([](auto &s) { s.mode = plan::LaunchMode(7); }), "launch mode 7"},
      {"stage arguments", inStep([](auto &s) {
         s.mode = plan::LaunchMode::Stage;
         while (s.args.size() <= 16)
           s.args.push_back(std::make_unique<plan::ArgT>(*s.args[0]));
       }),
       "17 arguments of a stage"},
      {"stage with a map", inStep([](auto &s) {
         s.mode = plan::LaunchMode::Stage;
         addMap(*s.args[1], 1, 8, 8);
       }),
       "a tensor map as an argument of a stage"},
      {"stage without clusters", inStep([](auto &s) {
         s.mode = plan::LaunchMode::Stage;
         s.cluster_blocks = 8;
       }),
       "0 clusters and 0 spare ones of 8 blocks"},
      {"stages of two launches", inFunction([](auto &f) {
         f.steps[0]->mode = plan::LaunchMode::Stage;
         f.steps[0]->clusters = 12;
         f.steps[0]->cluster_blocks = 8;
         f.steps.push_back(std::make_unique<plan::StepT>(*f.steps[0]));
         f.steps[1]->clusters = 13;
       }),
       "differ from the stage before"},
      {"stages of two kernels", inFunction([](auto &f) {
         f.steps[0]->mode = plan::LaunchMode::Stage;
         f.steps.push_back(std::make_unique<plan::StepT>(*f.steps[0]));
         f.steps[1]->block[0] /= 2;
       }),
       "differ from the stage before"},
      {"step grid", inStep([](auto &s) { s.grid.pop_back(); }), "three sizes"},
      {"step grid size", inStep([](auto &s) { s.grid[1] = constant(65536); }),
       "grid size may reach"},
      {"step grid negative", inStep([](auto &s) { s.grid[0]->code = {0, 0, 1, 1, 3, 0}; }),
       "grid size may reach [-16, -1]"},
      {"step divisor", inStep([](auto &s) { s.grid[0]->code = {1, 1, 1, 0, 0, 1, 3, 0, 5, 0}; }),
       "divide by a number below one"},
      {"step block zero", inStep([](auto &s) { s.block[0] = 0; }), "block size 0"},
      {"step threads", inStep([](auto &s) { s.block = {1024, 2, 1}; }), "2048 threads"},
      {"step shared", inStep([](auto &s) { s.shared_bytes = 1 << 30; }), "shared memory"},
      {"step flops", inStep([](auto &s) { s.flops->code = {2, 0}; }), "flops: malformed"},
      {"arg kind", inStep([](auto &s) { s.args[0]->kind = plan::ArgKind(40); }), "unknown kind 40"},
      {"arg input", inStep([](auto &s) { s.args[0]->index = 2; }), "unknown Input 2"},
      {"arg negative", inStep([](auto &s) { s.args[0]->index = -1; }), "unknown Input -1"},
      {"arg weight", inStep([](auto &s) { s.args[1]->index = 3; }), "unknown Weight 3"},
      {"arg offset", inStep([](auto &s) { s.args[2]->expr = constant(24); }), "offset may reach"},
      {"arg buffer", inStep([](auto &s) { s.args[3]->index = 1; }), "unknown Buffer 1"},
      {"arg buffer offset", inStep([](auto &s) { s.args[3]->expr = constant(-1); }),
       "offset may reach"},
      {"map columns", inStep([](auto &s) { addMap(*s.args[1], 4, 60, 64); }), "of 60 columns"},
      {"map box", inStep([](auto &s) { addMap(*s.args[1], 1, 8, 257); }), "boxes of 257 rows"},
      {"map rows", inStep([](auto &s) { addMap(*s.args[1], 1 << 20, 64, 64); }),
       "rows of a tensor map may reach"},
      {"map matrices", inStep([](auto &s) {
         addMap(*s.args[1], 1, 8, 8);
         s.args[1]->map->matrices = constant(1 << 20);
       }),
       "matrices of a tensor map may reach"},
      {"map without rows", inStep([](auto &s) {
         addMap(*s.args[1], 1, 8, 8);
         s.args[1]->map->rows.reset();
       }),
       "without rows"},
      {"map offset", inStep([](auto &s) {
         addMap(*s.args[1], 1, 8, 8);
         s.args[1]->expr = constant(16);
       }),
       "with an offset"},
      {"arg output", inStep([](auto &s) { s.args[4]->index = 1; }), "unknown Output 1"},
      {"arg integer", inStep([](auto &s) { s.args[5]->expr.reset(); }), "without an expression"},
      {"arg i32", inStep([](auto &s) { s.args[5]->expr = constant(int64_t(1) << 31); }),
       "value may reach"},
      {"arg scratch", inStep([](auto &s) { s.args[7]->index = 64; }), "scratch byte 64 of 64"},
      {"arg scratch odd", inStep([](auto &s) { s.args[7]->index = 2; }), "scratch byte 2"},
  };
  for (const Damage &test : cases) {
    std::string said = reasons(test.change);
    EXPECT_NE(said.find(test.reason), std::string::npos)
        << test.name << ": expected '" << test.reason << "', got '" << said << "'";
  }
}

/// Of a state in pages: each has two matrices of 4 x 8 halves.
TEST(PlanVerify, MapsOfPagesFollowTheirNumber) {
  const plan::ExprT pages = symbolExpr(1); // up to 16
  auto with = [&](const plan::ExprT &matrices) {
    return reasons([&](Sample &s) {
      s.function().name = "extend";
      auto &shape = s.function().inputs[1]->shape;
      shape.push_back(sample::boxed(pages));
      for (int64_t size : {2, 4, 8})
        shape.push_back(constant(size));
      plan::ArgT &arg = *s.step().args[0];
      arg.index = 1;
      addMap(arg, 4, 8, 4);
      arg.map->matrices = sample::boxed(matrices);
    });
  };
  auto times = [&](int64_t n) { return combineExpr(ExprOp::Mul, pages, constantExpr(n)); };
  EXPECT_EQ(with(times(2)), "");
  EXPECT_NE(with(times(3)).find("matrices of a tensor map may reach"), std::string::npos);
  EXPECT_NE(with(constantExpr(32))
                .find("matrices of a tensor map may reach [32, 32], allowed is "
                      "[0, 2]"),
            std::string::npos)
      << "too many where there is one page";
}

TEST(PlanVerify, ReportsAllDefectsTogether) {
  std::string said = reasons([](Sample &s) {
    s.meta().eos_token = 99;
    s.step().kernel = 9;
    s.function().buffers[0]->offset = 8;
  });
  EXPECT_NE(said.find("3 reasons"), std::string::npos) << said;
  EXPECT_NE(said.find("end-of-text"), std::string::npos);
  EXPECT_NE(said.find("unknown kernel 9"), std::string::npos);
  EXPECT_NE(said.find("multiple of 16"), std::string::npos);
}

TEST(PlanVerify, LongListsAreCut) {
  std::string said = reasons([](Sample &s) {
    for (int i = 0; i < 500; ++i) {
      auto weight = std::make_unique<plan::WeightT>();
      weight->dtype = plan::DType(77);
      s.meta().weights.push_back(std::move(weight));
    }
  });
  EXPECT_LT(std::count(said.begin(), said.end(), '\n'), 40);
}

TEST(PlanVerify, ImagesMustBeWhole) {
  std::vector<std::byte> cubin = sample::makeCubin();
  Elf64_Ehdr header;
  std::memcpy(&header, cubin.data(), sizeof header);
  header.e_shoff = 64;
  header.e_shnum = 1;
  header.e_shentsize = sizeof(Elf64_Shdr);
  std::memcpy(cubin.data(), &header, sizeof header);
  auto withImage = [&](std::span<const std::byte> image) {
    return reasons([&](Sample &, PlanSurroundings &around) { around.sections[1].bytes = image; });
  };
  EXPECT_NE(withImage(cubin).find("cut off"), std::string::npos);
  cubin.resize(cubin.size() + sizeof(Elf64_Shdr));
  EXPECT_EQ(withImage(cubin), "") << "a null section header is fine";
  Elf64_Shdr section{};
  section.sh_type = SHT_PROGBITS;
  section.sh_offset = 100;
  section.sh_size = UINT64_MAX - 50;
  std::memcpy(cubin.data() + 64, &section, sizeof section);
  EXPECT_NE(withImage(cubin).find("cut off"), std::string::npos);
  cubin[0] = std::byte{'?'};
  EXPECT_NE(withImage(cubin).find("no 64-bit ELF"), std::string::npos);
  EXPECT_NE(withImage(std::span(cubin).first(10)).find("shorter"), std::string::npos);
  EXPECT_NE(reasons([](Sample &, PlanSurroundings &around) {
              around.sections[2].bytes = around.sections[2].bytes.first(5);
            }).find("does not end with a NUL"),
            std::string::npos);
}

} // namespace
} // namespace gpt2c::rt
