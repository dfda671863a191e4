// A rotary embedding at the end of an epilogue: neighbouring columns are the pairs of heads, and the
// results are the bits that the op rope makes of what the product would have stored.
#pragma once

#include "templates/device/turn_pair.cuh"

namespace gpt2c::epilogue {

/// Which positions there are: of each row, of the rows of a sequence, the same for all, or of the
/// first row of each sequence, whose others follow.
enum class Positions { OfRows, OfSequence, OfFirst };

/// Of columns that are heads of HeadDim elements, an even number, the first Columns; in each head
/// the first Pairs pairs turn. A position of -p turns back by the angles of p; one behind the tables
/// is the last one.
template <typename Table, typename Position, int HeadDim, int Pairs, int Columns, Positions Of>
struct Rotation {
  static_assert(HeadDim % 2 == 0 && 2 * Pairs <= HeadDim && Columns % HeadDim == 0);

  const Table *cosines, *sines; // [places,Pairs]
  const Position *positions;
  int places, seq; // rows of the tables; of a sequence

  /// Of V neighbouring columns.
  template <int V> struct Angles {
    static constexpr int pairs = maxInt(1, V / 2);
    float cosine[pairs], sine[pairs];
    bool turns[pairs];
  };

  /// Where the tables have the angles of a row, p; ~p: it turns back by them.
  __device__ __forceinline__ int placeOf(i64 row) const {
    const int position = positionOf((unsigned)row);
    const int place = minInt(position < 0 ? -position : position, places - 1) * Pairs;
    return position < 0 ? ~place : place;
  }
  template <int V> __device__ __forceinline__ Angles<V> load(i64 row, i64 col) const {
    return loadAt<V>(placeOf(row), (int)col);
  }
  /// Loads are not conditional, so that those of many columns are on their way at once.
  template <int V> __device__ __forceinline__ Angles<V> loadAt(int of, int col) const {
    constexpr int pairs = Angles<V>::pairs;
    Angles<V> a;
    const int place = of < 0 ? ~of : of;
    if constexpr (HeadDim % V == 0 && 2 * Pairs % V == 0) { // all turn, or none
      const int first = col % HeadDim / 2;
      const bool turns = col < Columns && first < Pairs;
      const int at = place + (turns ? first : 0);
      loadFloats<pairs>(cosines + at, a.cosine);
      loadFloats<pairs>(sines + at, a.sine);
#pragma unroll
      for (int i = 0; i < pairs; i++)
        a.turns[i] = turns;
    } else {
#pragma unroll
      for (int i = 0; i < pairs; i++) {
        const int column = col + 2 * i, pair = column % HeadDim / 2;
        a.turns[i] = column < Columns && pair < Pairs;
        const int at = place + (a.turns[i] ? pair : 0);
        a.cosine[i] = toFloat(cosines[at]);
        a.sine[i] = toFloat(sines[at]);
      }
    }
#pragma unroll
    for (int i = 0; i < pairs; i++)
      a.sine[i] = of < 0 ? -a.sine[i] : a.sine[i];
    return a;
  }
  /// Of values that are rounded as they would be stored.
  template <int V>
  __device__ __forceinline__ void turn(float (&v)[V], const Angles<V> &angles) const {
#pragma unroll
    for (int i = 0; i < V / 2; i++) {
      float x = v[2 * i], y = v[2 * i + 1];
      turnPair(x, y, angles.cosine[i], angles.sine[i]);
      v[2 * i] = angles.turns[i] ? x : v[2 * i];
      v[2 * i + 1] = angles.turns[i] ? y : v[2 * i + 1];
    }
  }

  __device__ __forceinline__ int positionOf(unsigned row) const {
    if constexpr (Of == Positions::OfRows)
      return (int)positions[row];
    else if constexpr (Of == Positions::OfSequence)
      return (int)positions[row % (unsigned)seq];
    else
      return (int)positions[row / (unsigned)seq] + (int)(row % (unsigned)seq);
  }
};

/// An epilogue that ends with a rotation of what would be Stored. Where rows leave in lines, kernels turn these, each thread
/// four pairs (linear_store_lines.cuh), and else a few columns at a time.
template <typename Before, typename Rotation, typename Stored> struct Turned {
  using Paired = void;
  static constexpr int columnOperands = Before::columnOperands;
  Before before;
  Rotation rotation;

  template <int V> struct Operands {
    typename Before::template Operands<V> before;
    typename Rotation::template Angles<V> angles;
  };
  template <int V> __device__ __forceinline__ Operands<V> load(i64 row, i64 col) const {
    return {before.template load<V>(row, col), rotation.template load<V>(row, col)};
  }
  template <int V>
  __device__ __forceinline__ void apply(float (&v)[V], const Operands<V> &o) const {
    before.apply(v, o.before);
#pragma unroll
    for (int i = 0; i < V; i++)
      v[i] = toFloat(fromFloat<Stored>(v[i]));
    rotation.turn(v, o.angles);
  }
  template <int V>
  __device__ __forceinline__ void operator()(float (&v)[V], i64 row, i64 col) const {
    apply(v, load<V>(row, col));
  }
  __device__ __forceinline__ void prefetchColumn(i64 col) const { before.prefetchColumn(col); }
  template <int W>
  __device__ __forceinline__ void stageColumns(float (*shared)[W], int col0, int count, int thread,
                                               int threads) {
    before.stageColumns(shared, col0, count, thread, threads);
  }
};

} // namespace gpt2c::epilogue
