#include "ir/ops/RowProduct.h"

#include "ir/ops/BlasThreads.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <system_error>
#include <thread>
#include <vector>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace gpt2c {

static thread_local bool isActive = false;

RowInvariance::RowInvariance(bool wanted) : before_(isActive) { isActive |= wanted; }
RowInvariance::~RowInvariance() { isActive = before_; }
bool RowInvariance::active() { return isActive; }

/// Elements of K whose sum is added to the result at once.
constexpr int64_t partOfK = 1024;

template <typename T> constexpr int lanesOf = 32 / sizeof(T);

/// The sum of the lanes.
template <typename T> static T addLanes(T *lanes) {
  for (int half = lanesOf<T> / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l)
      lanes[l] += lanes[l + half];
  return lanes[0];
}

namespace {

/// Columns [first, end) of C; of B the rows, where it is transposed, or columns.
template <typename T> struct Part {
  Matrix<const T> a, b;
  Matrix<T> c;
  int64_t m, first, end, k;
  bool accumulate;
};

template <typename T> void portable(const Part<T> &p) {
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = p.first; j < p.end; ++j) {
      const T *a = p.a.data + i * p.a.stride;
      T &c = p.c.data[i * p.c.stride + j];
      if (!p.accumulate)
        c = 0;
      if (!p.b.transposed) {
        for (int64_t k = 0; k < p.k; ++k)
          c = std::fma(a[k], p.b.data[k * p.b.stride + j], c);
        continue;
      }
      const T *b = p.b.data + j * p.b.stride;
      for (int64_t from = 0; from < p.k; from += partOfK) {
        std::array<T, lanesOf<T>> lanes = {};
        for (int64_t k = 0; k < std::min(partOfK, p.k - from); ++k)
          lanes[k % lanesOf<T>] = std::fma(a[from + k], b[from + k], lanes[k % lanesOf<T>]);
        const T sum = addLanes<T>(lanes.data());
        c = from == 0 && !p.accumulate ? sum : c + sum;
      }
    }
}

#ifdef __x86_64__
#define GPT2C_AVX2 __attribute__((target("avx2,fma")))
#define GPT2C_AVX2_INLINE __attribute__((target("avx2,fma"), always_inline)) inline

template <typename T> struct Avx2;
template <> struct Avx2<float> {
  using V = __m256;
  GPT2C_AVX2_INLINE static V zero() { return _mm256_setzero_ps(); }
  GPT2C_AVX2_INLINE static V load(const float *p) { return _mm256_loadu_ps(p); }
  GPT2C_AVX2_INLINE static void store(float *p, V v) { _mm256_storeu_ps(p, v); }
  GPT2C_AVX2_INLINE static V all(float x) { return _mm256_set1_ps(x); }
  GPT2C_AVX2_INLINE static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
};
template <> struct Avx2<double> {
  using V = __m256d;
  GPT2C_AVX2_INLINE static V zero() { return _mm256_setzero_pd(); }
  GPT2C_AVX2_INLINE static V load(const double *p) { return _mm256_loadu_pd(p); }
  GPT2C_AVX2_INLINE static void store(double *p, V v) { _mm256_storeu_pd(p, v); }
  GPT2C_AVX2_INLINE static V all(double x) { return _mm256_set1_pd(x); }
  GPT2C_AVX2_INLINE static V fma(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
};

/// R x C elements of C over up to partOfK elements of K, B transposed.
template <typename T, int R, int C>
GPT2C_AVX2_INLINE void dotProducts(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, int64_t k,
                                   bool add) {
  using O = Avx2<T>;
  constexpr int L = lanesOf<T>;
  typename O::V sums[R][C];
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < C; ++j)
      sums[r][j] = O::zero();
  int64_t at = 0;
  for (; at + L <= k; at += L) {
    typename O::V x[R];
    for (int r = 0; r < R; ++r)
      x[r] = O::load(a.data + r * a.stride + at);
    for (int j = 0; j < C; ++j) {
      const typename O::V w = O::load(b.data + j * b.stride + at);
      for (int r = 0; r < R; ++r)
        sums[r][j] = O::fma(x[r], w, sums[r][j]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < C; ++j) {
      T lanes[L];
      O::store(lanes, sums[r][j]);
      for (int64_t i = at; i < k; ++i)
        lanes[i - at] = std::fma(a.data[r * a.stride + i], b.data[j * b.stride + i], lanes[i - at]);
      const T sum = addLanes(lanes);
      T &to = c.data[r * c.stride + j];
      to = add ? to + sum : sum;
    }
}

/// R rows of C, B transposed.
template <typename T, int R>
GPT2C_AVX2_INLINE void dotRows(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, int64_t n,
                               int64_t k, bool add) {
  constexpr int C = R == 1 ? 8 : 4;
  int64_t j = 0;
  auto rest = [&]() -> Matrix<const T> { return {b.data + j * b.stride, b.stride}; };
  for (; j + C <= n; j += C)
    dotProducts<T, R, C>(a, rest(), {c.data + j, c.stride}, k, add);
  for (; j < n; ++j)
    dotProducts<T, R, 1>(a, rest(), {c.data + j, c.stride}, k, add);
}

/// R rows and C vectors of columns of C, B not transposed.
template <typename T, int R, int C>
GPT2C_AVX2_INLINE void addRows(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, int64_t k,
                               bool add) {
  using O = Avx2<T>;
  constexpr int L = lanesOf<T>;
  typename O::V sums[R][C];
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < C; ++j)
      sums[r][j] = add ? O::load(c.data + r * c.stride + j * L) : O::zero();
  for (int64_t i = 0; i < k; ++i) {
    typename O::V x[R];
    for (int r = 0; r < R; ++r)
      x[r] = O::all(a.data[r * a.stride + i]);
    for (int j = 0; j < C; ++j) {
      const typename O::V w = O::load(b.data + i * b.stride + j * L);
      for (int r = 0; r < R; ++r)
        sums[r][j] = O::fma(x[r], w, sums[r][j]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < C; ++j)
      O::store(c.data + r * c.stride + j * L, sums[r][j]);
}

/// R rows of C from column `first` on, B not transposed; what is left of a vector is `portable`.
template <typename T, int R> GPT2C_AVX2_INLINE void scaledRows(const Part<T> &p, int64_t row) {
  constexpr int L = lanesOf<T>;
  const Matrix<const T> a = {p.a.data + row * p.a.stride, p.a.stride};
  int64_t j = p.first;
  auto columns = [&](auto &matrix) { return matrix.data + j; };
  auto to = [&]() -> Matrix<T> { return {columns(p.c) + row * p.c.stride, p.c.stride}; };
  for (; j + 4 * L <= p.end; j += 4 * L)
    addRows<T, R, 4>(a, {columns(p.b), p.b.stride}, to(), p.k, p.accumulate);
  for (; j + L <= p.end; j += L)
    addRows<T, R, 1>(a, {columns(p.b), p.b.stride}, to(), p.k, p.accumulate);
  if (j < p.end)
    portable<T>(
        {a, p.b, {p.c.data + row * p.c.stride, p.c.stride}, R, j, p.end, p.k, p.accumulate});
}

template <typename T> GPT2C_AVX2 void withAvx2(const Part<T> &p) {
  constexpr int64_t columns = 64; // whose part of K stays in the cache
  int64_t i = 0;
  if (!p.b.transposed) {
    for (; i + 3 <= p.m; i += 3)
      scaledRows<T, 3>(p, i);
    for (; i < p.m; ++i)
      scaledRows<T, 1>(p, i);
    return;
  }
  for (int64_t j = p.first; j < p.end; j += columns)
    for (int64_t from = 0; from < p.k; from += partOfK) {
      const int64_t n = std::min(columns, p.end - j), k = std::min(partOfK, p.k - from);
      const Matrix<const T> b = {p.b.data + j * p.b.stride + from, p.b.stride};
      const bool add = p.accumulate || from > 0;
      auto a = [&]() -> Matrix<const T> { return {p.a.data + i * p.a.stride + from, p.a.stride}; };
      auto c = [&]() -> Matrix<T> { return {p.c.data + i * p.c.stride + j, p.c.stride}; };
      for (i = 0; i + 3 <= p.m; i += 3)
        dotRows<T, 3>(a(), b, c(), n, k, add);
      for (; i < p.m; ++i)
        dotRows<T, 1>(a(), b, c(), n, k, add);
    }
}

bool hasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}
#endif

template <typename T> void run(const Part<T> &p) {
#ifdef __x86_64__
  if (hasAvx2() && p.k > 0)
    return withAvx2(p);
#endif
  portable(p);
}

} // namespace

template <typename T>
void rowProduct(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, int64_t m, int64_t n, int64_t k,
                bool accumulate) {
  constexpr double worthThread = 2e6; // products, some hundred microseconds
  constexpr int64_t unit = 64;        // columns
  const Part<T> all{a, b, c, m, 0, n, k, accumulate};
  const auto most = static_cast<int64_t>(double(m) * double(n) * double(k) / worthThread);
  const int64_t threads =
      std::clamp<int64_t>(std::min(most, n / unit), 1, std::max(1, productThreads()));
  std::vector<std::thread> others;
  const int64_t each = ((n + threads - 1) / threads + unit - 1) / unit * unit;
  Part<T> mine = all;
  mine.end = std::min(n, each);
  for (int64_t first = each; first < n; first += each) {
    Part<T> part = all;
    part.first = first;
    part.end = std::min(n, first + each);
    try {
      others.emplace_back([part] { run(part); });
    } catch (const std::system_error &) { // no more threads
      run(part);
    }
  }
  run(mine);
  for (std::thread &t : others)
    t.join();
}

template <typename T>
void portableRowProduct(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, int64_t m, int64_t n,
                        int64_t k, bool accumulate) {
  portable<T>({a, b, c, m, 0, n, k, accumulate});
}

template void rowProduct(Matrix<const float>, Matrix<const float>, Matrix<float>, int64_t, int64_t,
                         int64_t, bool);
template void rowProduct(Matrix<const double>, Matrix<const double>, Matrix<double>, int64_t,
                         int64_t, int64_t, bool);
template void portableRowProduct(Matrix<const float>, Matrix<const float>, Matrix<float>, int64_t,
                                 int64_t, int64_t, bool);
template void portableRowProduct(Matrix<const double>, Matrix<const double>, Matrix<double>,
                                 int64_t, int64_t, int64_t, bool);

} // namespace gpt2c
