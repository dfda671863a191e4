#include "ir/ops/TileProduct.h"

#include "ir/Storage.h"
#include "ir/ops/Workers.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace gpt2c {

constexpr int64_t tileRows = 16;

template <typename W> uint32_t &TileRows<W>::word(int64_t row, int64_t at) {
  return static_cast<uint32_t *>(
      words_
          .get())[((row / tileRows * steps_ + at / 16) * 16 + at % 16) * tileRows + row % tileRows];
}

template <typename W> static std::shared_ptr<void> takeTiles(int64_t m, int64_t steps) {
  const size_t bytes = size_t((m + tileRows - 1) / tileRows * tileRows * steps) * 64;
  std::shared_ptr<void> words = StoragePool::take(bytes);
  if (!words)
    throw std::bad_alloc();
  if (m % tileRows) // rows that are not there
    std::memset(static_cast<char *>(words.get()) + m / tileRows * tileRows * steps * 64, 0,
                size_t(tileRows * steps) * 64);
  return words;
}

template <>
TileRows<int8_t>::TileRows(Matrix<const int8_t> a, int64_t m, int64_t k)
    : m_(m), steps_(k / tileElements<int8_t>), words_(takeTiles<int8_t>(m, steps_)) {
  for (int64_t row = 0; row < m; ++row)
    for (int64_t i = 0; i < k / 4; ++i)
      std::memcpy(&word(row, i), a.data + row * a.stride + 4 * i, 4);
}

template <>
TileRows<BFloat>::TileRows(Matrix<const float> a, int64_t m, int64_t k)
    : m_(m), steps_(k / tileElements<BFloat>), words_(takeTiles<BFloat>(m, steps_)) {
  for (int64_t row = 0; row < m; ++row)
    for (int64_t i = 0; i < k / 2; ++i) {
      const float *pair = a.data + row * a.stride + 2 * i;
      word(row, i) =
          std::bit_cast<uint32_t>(pair[0]) >> 16 | (std::bit_cast<uint32_t>(pair[1]) & 0xffff0000u);
    }
}

#ifdef __x86_64__
namespace {

#define TARGET "amx-tile,amx-int8,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl"
#define TILES __attribute__((target(TARGET)))
#define TILES_INLINE __attribute__((target(TARGET), always_inline)) static inline
#define UNROLLED _Pragma("GCC unroll 16")

/// All eight registers as 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// While one lives, the thread's registers are tiles.
class TileScope {
public:
  TILES TileScope() {
    static const TileConfig config;
    _tile_loadconfig(&config);
  }
  TILES ~TileScope() { _tile_release(); }
  TileScope(const TileScope &) = delete;
  TileScope &operator=(const TileScope &) = delete;
};

template <typename W> struct Sums; // of a tile of columns and rows
template <> struct Sums<int8_t> {
  alignas(64) int32_t of[2][2][256];
};
template <> struct Sums<BFloat> {
  alignas(64) float of[2][2][256];
};

#define MULTIPLY(to, w, x)                                                                         \
  do {                                                                                             \
    if constexpr (sizeof(W) == 1)                                                                  \
      _tile_dpbssd(to, w, x);                                                                      \
    else                                                                                           \
      _tile_dpbf16ps(to, w, x);                                                                    \
  } while (0)

/// Sums of N tiles of columns and M tiles of rows: of[column tile][row tile][column, row].
template <typename W, int N, int M>
TILES_INLINE void sumTiles(const W *w, int64_t stride, const uint32_t *x, const uint32_t *more,
                           int64_t steps, Sums<W> &sums) {
  asm volatile("" ::: "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t i = 0; i < steps; ++i) {
    const W *at = w + i * tileElements<W>;
    _tile_loadd(4, at, stride * sizeof(W));
    _tile_loadd(6, x + i * 256, 64);
    MULTIPLY(0, 4, 6);
    if constexpr (M > 1) {
      _tile_loadd(7, more + i * 256, 64);
      MULTIPLY(1, 4, 7);
    }
    if constexpr (N > 1) {
      _tile_loadd(5, at + tileColumns * stride, stride * sizeof(W));
      MULTIPLY(2, 5, 6);
      if constexpr (M > 1)
        MULTIPLY(3, 5, 7);
    }
  }
  _tile_stored(0, sums.of[0][0], 64);
  _tile_stored(1, sums.of[0][1], 64);
  _tile_stored(2, sums.of[1][0], 64);
  _tile_stored(3, sums.of[1][1], 64);
  asm volatile("" ::: "memory");
}

/// Rows of 16 words become columns. Forms without a mask begin with an undefined register, which
/// GCC 12 warns of.
TILES_INLINE void transpose(__m512i (&r)[16]) {
  constexpr __mmask16 all = 0xffff;
  constexpr __mmask8 pairs = 0xff;
  __m512i t[16];
  UNROLLED
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_maskz_unpacklo_epi32(all, r[i], r[i + 1]);
    t[i + 1] = _mm512_maskz_unpackhi_epi32(all, r[i], r[i + 1]);
  }
  UNROLLED
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_maskz_unpacklo_epi64(pairs, t[i], t[i + 2]);
    r[i + 1] = _mm512_maskz_unpackhi_epi64(pairs, t[i], t[i + 2]);
    r[i + 2] = _mm512_maskz_unpacklo_epi64(pairs, t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_maskz_unpackhi_epi64(pairs, t[i + 1], t[i + 3]);
  }
  // Quarter q of r[4 i + j] has column 4 q + j of rows 4 i on.
  UNROLLED
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_maskz_shuffle_i32x4(all, r[j], r[4 + j], 0x88),
                  b = _mm512_maskz_shuffle_i32x4(all, r[j], r[4 + j], 0xdd),
                  c = _mm512_maskz_shuffle_i32x4(all, r[8 + j], r[12 + j], 0x88),
                  d = _mm512_maskz_shuffle_i32x4(all, r[8 + j], r[12 + j], 0xdd);
    t[j] = _mm512_maskz_shuffle_i32x4(all, a, c, 0x88);
    t[4 + j] = _mm512_maskz_shuffle_i32x4(all, b, d, 0x88);
    t[8 + j] = _mm512_maskz_shuffle_i32x4(all, a, c, 0xdd);
    t[12 + j] = _mm512_maskz_shuffle_i32x4(all, b, d, 0xdd);
  }
  UNROLLED
  for (int i = 0; i < 16; ++i)
    r[i] = t[i];
}

/// Columns `at` on of a result, and what becomes of their sums.
struct ScaledColumns {
  Matrix<float> c;
  TileScales scales;

  TILES void add(const int32_t *sums, int64_t at, int64_t row, int64_t rows) const {
    __m512i r[16];
    UNROLLED
    for (int j = 0; j < 16; ++j) {
      r[j] = _mm512_load_si512(sums + j * tileRows);
      if (scales.offset)
        r[j] = _mm512_add_epi32(r[j], _mm512_set1_epi32(scales.offset[at + j]));
    }
    transpose(r);
    alignas(64) float column[16];
    for (int j = 0; j < 16; ++j)
      column[j] = scales.column[(at + j) * scales.columnStride];
    const __m512 ofColumns = _mm512_load_ps(column);
    for (int64_t i = 0; i < rows; ++i) {
      float *to = c.data + (row + i) * c.stride + at;
      const __m512 ofRow = _mm512_set1_ps(scales.row[(row + i) * scales.rowStride]);
      __m512 scaled = _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(r[i]), ofRow), ofColumns);
      asm("" : "+v"(scaled)); // a fused multiply-add would round once
      _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), scaled));
    }
  }
};

struct PlainColumns {
  Matrix<float> c;

  TILES void add(const float *sums, int64_t at, int64_t row, int64_t rows) const {
    __m512i r[16];
    UNROLLED
    for (int j = 0; j < 16; ++j)
      r[j] = _mm512_load_si512(sums + j * tileRows);
    transpose(r);
    for (int64_t i = 0; i < rows; ++i)
      _mm512_storeu_si512(c.data + (row + i) * c.stride + at, r[i]);
  }
};

/// All rows of one or two tiles of columns.
template <typename W, int N, typename Out>
TILES void columnsOf(const TileRows<W> &a, const W *b, int64_t stride, int64_t at, int64_t first,
                     int64_t steps, const Out &out) {
  Sums<W> sums;
  const int64_t tiles = (a.rows() + tileRows - 1) / tileRows;
  for (int64_t i = 0; i < tiles; i += 2) {
    const bool two = i + 1 < tiles;
    const uint32_t *x = a.tile(i, first);
    if (two)
      sumTiles<W, N, 2>(b, stride, x, a.tile(i + 1, first), steps, sums);
    else
      sumTiles<W, N, 1>(b, stride, x, nullptr, steps, sums);
    for (int j = 0; j < N; ++j)
      for (int m = 0; m < (two ? 2 : 1); ++m) {
        const int64_t row = (i + m) * tileRows;
        out.add(sums.of[j][m], at + j * tileColumns, row, std::min(tileRows, a.rows() - row));
      }
  }
}

template <typename W, typename Out>
void multiply(const TileRows<W> &a, Matrix<const W> b, int64_t n, int64_t first, int64_t count,
              const Out &out) {
  const int64_t tiles = n / tileColumns, pairs = (tiles + 1) / 2, steps = count / tileElements<W>;
  const int64_t parts = partsOf(double(a.rows()) * double(n) * double(count) / 16, pairs);
  forParts(parts, [&](int64_t part) {
    const TileScope scope;
    for (int64_t i = pairs * part / parts; i < pairs * (part + 1) / parts; ++i) {
      const int64_t at = 2 * i * tileColumns;
      const W *from = b.data + at * b.stride + first;
      if (2 * i + 1 < tiles)
        columnsOf<W, 2>(a, from, b.stride, at, first, steps, out);
      else
        columnsOf<W, 1>(a, from, b.stride, at, first, steps, out);
    }
  });
}

} // namespace

void tileProduct(const TileRows<int8_t> &a, Matrix<const int8_t> b, TileScales scales,
                 Matrix<float> c, int64_t n, int64_t first, int64_t count) {
  multiply(a, b, n, first, count, ScaledColumns{c, scales});
}

void tileProduct(const TileRows<BFloat> &a, Matrix<const BFloat> b, Matrix<float> c, int64_t n,
                 int64_t k) {
  multiply(a, b, n, 0, k, PlainColumns{c});
}
#else
void tileProduct(const TileRows<int8_t> &, Matrix<const int8_t>, TileScales, Matrix<float>, int64_t,
                 int64_t, int64_t) {}
void tileProduct(const TileRows<BFloat> &, Matrix<const BFloat>, Matrix<float>, int64_t, int64_t) {}
#endif

} // namespace gpt2c
