#include "tests/emulated/Machine.h"

#include "gtest/gtest.h"

using namespace gpt2c::emulated;

namespace {

constexpr unsigned threads = 64;

/// A kernel k(to, from) of a body that has %out = to + 4 tid, %in = from + 4 tid and their address
/// in `words`, of which a block has 64 in shared memory.
std::string kernel(const std::string &body, const std::string &directives = "") {
  return R"(
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 to, .param .u64 from)
)" + directives +
         R"({
.reg .pred %p<9>;
.reg .b32 %r<20>;
.reg .f32 %f<20>;
.reg .b64 %rd<9>;
.reg .b64 %out, %in;
.reg .b32 %tid, %mine, %next;
.shared .align 128 .b8 words[256];
.shared .align 8 .b8 barrier[16];
ld.param.u64 %out, [to];
ld.param.u64 %in, [from];
mov.u32 %tid, %tid.x;
mul.wide.u32 %rd1, %tid, 4;
add.s64 %out, %out, %rd1;
add.s64 %in, %in, %rd1;
mov.u32 %r1, words;
shl.b32 %r2, %tid, 2;
add.s32 %mine, %r1, %r2;
add.s32 %r3, %r2, 128;
and.b32 %r3, %r3, 255;
add.s32 %next, %r1, %r3; // half of the block further on
)" + body +
         "\nret;\n}\n";
}

struct Case {
  std::vector<int> to = std::vector<int>(threads, -1), from;
  uint64_t seed;

  explicit Case(uint64_t seed = 1) : from(threads), seed(seed) {
    for (unsigned i = 0; i < threads; ++i)
      from[i] = int(100 + i);
  }
  /// Launches of kernels one behind the other, which overlap.
  void run(const std::vector<std::string> &bodies) {
    Machine machine(seed);
    machine.allocate(to.data(), to.size() * 4);
    machine.allocate(from.data(), from.size() * 4);
    std::vector<std::unique_ptr<Module>> modules;
    for (const std::string &body : bodies) {
      modules.push_back(std::make_unique<Module>(kernel(body)));
      const uint64_t values[] = {uint64_t(to.data()), uint64_t(from.data())};
      std::vector<char> params(sizeof(values));
      std::memcpy(params.data(), values, sizeof(values));
      machine.launch(modules.back()->functions.at("k"),
                     {.blocks = {1, 1, 1},
                      .threads = threads,
                      .dynamicShared = 0,
                      .overlaps = modules.size() > 1},
                     params);
    }
    machine.finish();
  }
};

/// How many of so many orders give `want`.
int right(const std::vector<std::string> &bodies, const std::vector<int> &want, int orders = 40) {
  int count = 0;
  for (int seed = 1; seed <= orders; ++seed) {
    Case c{uint64_t(seed)};
    c.run(bodies);
    count += c.to == want;
  }
  return count;
}

std::vector<int> rotated() {
  std::vector<int> want(threads);
  for (unsigned i = 0; i < threads; ++i)
    want[i] = int(100 + (i + 32) % threads);
  return want;
}
std::string errorOf(const std::string &body) {
  try {
    Case().run({body});
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

TEST(Machine, LoadsComputesAndStores) {
  Case c;
  c.run({"ld.global.u32 %r9, [%in]; mad.lo.s32 %r9, %r9, 3, -1; setp.lt.s32 %p1, %r9, 400;\n"
         "@%p1 neg.s32 %r9, %r9; st.global.u32 [%out], %r9;"});
  for (int i = 0; i < int(threads); ++i) {
    const int v = 3 * (100 + i) - 1;
    EXPECT_EQ(c.to[size_t(i)], v < 400 ? -v : v);
  }
}

TEST(Machine, ABarrierThatIsMissingShows) {
  const std::string write = "ld.global.u32 %r9, [%in]; st.shared.u32 [%mine], %r9;\n",
                    read = "ld.shared.u32 %r9, [%next]; st.global.u32 [%out], %r9;\n";
  EXPECT_EQ(right({write + "bar.sync 0;\n" + read}, rotated()), 40);
  EXPECT_LT(right({write + read}, rotated()), 20);
}

TEST(Machine, LaunchesOverlap) {
  const std::string first = "griddepcontrol.launch_dependents; ld.global.u32 %r9, [%in];\n"
                            "st.global.u32 [%out], %r9;",
                    second = "ld.global.u32 %r9, [%out]; add.s32 %r9, %r9, 1;\n"
                             "st.global.u32 [%out], %r9;";
  std::vector<int> want(threads);
  for (unsigned i = 0; i < threads; ++i)
    want[i] = int(101 + i);
  EXPECT_EQ(right({first, "griddepcontrol.wait;" + second}, want), 40);
  EXPECT_LT(right({first, second}, want), 20);
}

TEST(Machine, BulkCopiesArriveLater) {
  const std::string copy = R"(
mov.u32 %r10, barrier;
setp.ne.s32 %p1, %tid, 0;
@%p1 bra started;
mbarrier.init.shared.b64 [%r10], 1;
mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in], 256, [%r10];
started:
bar.sync 0;
)",
                    wait = R"({
.reg .pred done;
again: mbarrier.try_wait.parity.shared.b64 done, [%r10], 0;
@!done bra again;
})",
                    read = "ld.shared.u32 %r9, [%next]; st.global.u32 [%out], %r9;\n";
  EXPECT_EQ(right({copy + wait + read}, rotated()), 40);
  EXPECT_LT(right({copy + read}, rotated()), 35);
}

TEST(Machine, BulkCopiesEndInAnyOrder) {
  // Halves, each with a barrier of its own: the second does not tell of the first.
  auto copy = [](const std::string &barrier) {
    return "@!%p1 mbarrier.arrive.expect_tx.shared.b64 _, [" + barrier +
           "], 128;\n@!%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
           "[%r1], [%in], 128, [" +
           barrier + "];\nadd.s32 %r1, %r1, 128;\nadd.s64 %in, %in, 128;\n";
  };
  auto wait = [](const std::string &barrier) {
    return "{\n.reg .pred done;\nagain: mbarrier.try_wait.parity.shared.b64 done, [" + barrier +
           "], 0;\n@!done bra again;\n}\n";
  };
  const std::string begin = R"(
mov.u32 %r10, barrier;
add.s32 %r11, %r10, 8;
setp.ne.s32 %p1, %tid, 0;
@!%p1 mbarrier.init.shared.b64 [%r10], 1;
@!%p1 mbarrier.init.shared.b64 [%r11], 1;
)" + copy("%r10") + copy("%r11") +
                            "bar.sync 0;\n",
                    read = "ld.shared.u32 %r9, [%next]; st.global.u32 [%out], %r9;\n";
  EXPECT_EQ(right({begin + wait("%r10") + wait("%r11") + read}, rotated()), 40);
  EXPECT_LT(right({begin + wait("%r11") + read}, rotated()), 35);
}

TEST(Machine, ALookAtABarrierDoesNotSleep) {
  // The first thread looks until the last one, of another warp, has arrived.
  Case c;
  c.run({R"(
mov.u32 %r10, barrier;
setp.ne.s32 %p1, %tid, 0;
@!%p1 mbarrier.init.shared.b64 [%r10], 1;
bar.sync 0;
mov.u32 %r9, 0;
setp.eq.s32 %p2, %tid, 63;
@%p2 mbarrier.arrive.shared.b64 _, [%r10];
look:
add.s32 %r9, %r9, 1;
mbarrier.test_wait.parity.shared.b64 %p3, [%r10], 0;
vote.sync.all.pred %p4, %p3, -1;
@!%p4 bra look;
st.global.u32 [%out], %r9;)"});
  for (int count : c.to)
    EXPECT_GE(count, 1);
}

TEST(Machine, CopiesThatNobodyWaitsFor) {
  const std::string copy = "cp.async.ca.shared.global [%mine], [%in], 4;\n"
                           "cp.async.commit_group;\n",
                    read = "bar.sync 0; ld.shared.u32 %r9, [%next]; st.global.u32 [%out], %r9;\n";
  EXPECT_EQ(right({copy + "cp.async.wait_group 0;\n" + read}, rotated()), 40);
  EXPECT_LT(right({copy + read}, rotated()), 20);
}

TEST(Machine, LanesShuffle) {
  Case c;
  c.run({"ld.global.u32 %r9, [%in];\n"
         "shfl.sync.bfly.b32 %r10|%p1, %r9, 5, 31, -1; st.global.u32 [%out], %r10;"});
  for (unsigned i = 0; i < threads; ++i)
    EXPECT_EQ(c.to[i], int(100 + (i ^ 5)));
}

TEST(Machine, BitsOfThreeWordsAreLookedUp) {
  Case c;
  c.run({"ld.global.u32 %r9, [%in];\n"
         "lop3.b32 %r10, %r9, 15, 40, 0x6a; st.global.u32 [%out], %r10;"});
  for (unsigned i = 0; i < threads; ++i)
    EXPECT_EQ(c.to[i], int(((100 + i) & 15) ^ 40));
}

TEST(Machine, PairsOfFp8BecomeHalves) {
  Case c;
  c.run({".reg .b16 %h<2>;\n"
         "mov.b32 %r9, 3154182144; mov.b32 {%h0, %h1}, %r9;\n" // -1.5, 2^-9 above zeros
         "cvt.rn.f16x2.e4m3x2 %r10, %h1; st.global.u32 [%out], %r10;"});
  EXPECT_EQ(c.to, std::vector<int>(threads, int(0xbe001800)));
}

TEST(Machine, FloatsBecomePairsOfFp8) {
  // 500, of which 448 is left, above -2^-9; of halves 17, a tie of 16 and 18, above 1.
  Case c;
  c.run({".reg .b16 %h<2>;\n"
         "cvt.rn.satfinite.e4m3x2.f32 %h0, 0f43FA0000, 0fBB000000;\n"
         "mov.b32 %r9, 1279278080; cvt.rn.satfinite.e4m3x2.f16x2 %h1, %r9;\n"
         "mov.b32 %r10, {%h0, %h1}; st.global.u32 [%out], %r10;"});
  EXPECT_EQ(c.to, std::vector<int>(threads, 0x58387e81));
}

TEST(Machine, MatricesMultiply) {
  // Ones of m16n8k16: each sum is 16.
  Case c;
  c.run({"mov.b32 %r9, 1006648320; mov.f32 %f1, 0f3F800000;\n"
         "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5},\n"
         "{%r9, %r9, %r9, %r9}, {%r9, %r9}, {%f1, %f1, %f1, %f1};\n"
         "add.f32 %f2, %f2, %f5; cvt.rni.s32.f32 %r10, %f2; st.global.u32 [%out], %r10;"});
  EXPECT_EQ(c.to, std::vector<int>(threads, 34));
}

TEST(Machine, MatricesAreTransposed) {
  // Lane l has row l / 4, columns 2 (l % 4) and the next, whose elements are 8 row + column.
  Case c;
  c.run({R"(
and.b32 %r9, %tid, 31;
mul.lo.s32 %r9, %r9, 2;
add.s32 %r10, %r9, 1;
shl.b32 %r10, %r10, 16;
or.b32 %r9, %r9, %r10;
movmatrix.sync.aligned.m8n8.trans.b16 %r11, %r9;
st.global.u32 [%out], %r11;)"});
  for (int i = 0; i < int(threads); ++i) {
    const int row = i % 32 / 4, column = i % 4 * 2;
    EXPECT_EQ(c.to[size_t(i)], (column * 8 + row) | ((column + 1) * 8 + row) << 16);
  }
}

TEST(Machine, SaysWhatIsWrong) {
  EXPECT_NE(errorOf("st.global.u32 [%out+4096], %r1;").find("nobody's memory"), std::string::npos);
  EXPECT_NE(errorOf("st.global.u32 [%out+4096], %r1;").find(": st.global.u32"), std::string::npos);
  EXPECT_NE(errorOf("st.global.u32 [%out+2], %r1;").find("multiple of its 4"), std::string::npos);
  EXPECT_NE(errorOf("ld.shared.u32 %r9, [%mine+1048576];").find("shared memory"),
            std::string::npos);
  EXPECT_NE(errorOf("bar.sync 1, 96;").find("all threads wait"), std::string::npos);
  EXPECT_NE(errorOf("frob.u32 %r9, %r1;").find("unknown instruction frob.u32"), std::string::npos);
  EXPECT_NE(errorOf("mov.u32 %r9, nobody;").find("unknown name nobody"), std::string::npos);
  EXPECT_NE(errorOf("trap;").find("gave up"), std::string::npos);
}

TEST(Halves, RoundToTheNearestAndToEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float v = halfToFloat(uint16_t(bits));
    if (v == v) {
      ASSERT_EQ(floatToHalf(v), bits);
    }
  }
  EXPECT_EQ(floatToHalf(1.0F + 0x1p-11F), 0x3c00);
  EXPECT_EQ(floatToHalf(1.0F + 3 * 0x1p-11F), 0x3c02);
  EXPECT_EQ(floatToHalf(65519.0F), 0x7bff);
  EXPECT_EQ(floatToHalf(65520.0F), 0x7c00);
  EXPECT_EQ(floatToHalf(0x1p-25F), 0);
  EXPECT_EQ(floatToHalf(3 * 0x1p-25F), 2);
  EXPECT_EQ(floatToHalf(-0x1.8p-25F), 0x8001);
}

} // namespace
