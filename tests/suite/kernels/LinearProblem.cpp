#include "LinearProblem.h"

namespace gpt2c::kernels {

static double apply(const EpilogueStage &stage, double v, double operand) {
  switch (stage.kind) {
  case EpilogueStage::AddBias:
  case EpilogueStage::AddMatrix:
  case EpilogueStage::AddLastRows:
    return v + operand;
  case EpilogueStage::MulMatrix:
  case EpilogueStage::ScaleRow:
  case EpilogueStage::ScaleColumn:
  case EpilogueStage::ScaleAll:
  case EpilogueStage::ScaleByValue:
    return v * operand;
  case EpilogueStage::GeluTanh:
  case EpilogueStage::GeluTanhHalf:
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  case EpilogueStage::GeluErf:
    return 0.5 * v * std::erfc(-v / std::sqrt(2.0));
  case EpilogueStage::Relu:
    return v > 0 ? v : 0;
  case EpilogueStage::ReluSquared:
    return v > 0 ? v * v : 0;
  case EpilogueStage::Silu:
    return v / (1 + std::exp(-v));
  case EpilogueStage::Sigmoid:
    return 1 / (1 + std::exp(-v));
  case EpilogueStage::Tanh:
    return std::tanh(v);
  case EpilogueStage::Send: // as it is
  case EpilogueStage::Scatter:
  case EpilogueStage::Receive:
  case EpilogueStage::Gate: // of pairs, see gatePairs and turnPairs
  case EpilogueStage::Rotation:
    return v;
  case EpilogueStage::QuantiseByScale:
    return givenInteger(Given::Scale, v);
  case EpilogueStage::QuantiseByScaleAndZero:
    return givenInteger(Given::ScaleAndZero, v);
  case EpilogueStage::QuantiseByFp8Scale:
    return givenInteger(Given::Fp8Scale, v);
  }
  return v;
}

static bool isScale(const EpilogueStage &stage) {
  return stage.kind == EpilogueStage::ScaleRow || stage.kind == EpilogueStage::ScaleColumn ||
         stage.kind == EpilogueStage::ScaleAll;
}

Tensor randomInput(Run &run, size_t count, Scalar type, double deviation) {
  if (type == Scalar::F8E4M3) // of every size, as far as int8 goes
    deviation = 50;
  if (type != Scalar::I8 && type != Scalar::I4)
    return run.input(run.normal(count, deviation), type);
  std::vector<int> values =
      type == Scalar::I4 ? run.integers(count, -8, 7) : run.integers(count, -127, 127);
  return run.input({values.begin(), values.end()}, type);
}
Tensor randomScales(Run &run, size_t count) {
  std::vector<int> values = run.integers(count, 50, 150);
  std::vector<double> scales(values.begin(), values.end());
  for (double &s : scales)
    s /= 7300;
  return run.input(scales, Scalar::F32);
}

Problem::Problem(Run &run, Shape s, Scalar xt, Scalar wt, Scalar yt, const Epilogue &epilogue)
    : shape(s), dry_(run.isDry()) {
  if (xt == Scalar::F8E4M3)
    sumError = std::ldexp(1.0, -11);
  x = randomInput(run, (size_t)s.m * s.k, xt);
  w = randomInput(run, (size_t)s.n * s.k, wt, 1 / std::sqrt((double)s.k));
  y = run.output((size_t)s.m * s.n / (isGated(epilogue) ? 2 : 1), yt);
  for (const EpilogueStage &stage : epilogue)
    if (isScale(stage))
      operands.push_back(randomScales(run, stage.kind == EpilogueStage::ScaleRow   ? s.m
                                           : stage.kind == EpilogueStage::ScaleAll ? 1
                                                                                   : s.n));
    else if (stage.kind == EpilogueStage::AddLastRows) {
      gathered = operands.size();
      operands.push_back(run.input(run.normal((size_t)s.m * seq * s.n), stage.operand));
      lengths = run.integers(s.m, 0, seq);
      lengthsInput = run.integerInput(lengths);
    } else if (hasOperand(stage))
      operands.push_back(
          run.input(run.normal(stage.kind == EpilogueStage::AddBias ? s.n : (size_t)s.m * s.n),
                    stage.operand));
  if (!epilogue.empty() && epilogue.back().kind == EpilogueStage::Rotation) {
    rotation = epilogue.back().rotation;
    const size_t angles = size_t(places) * rotation->pairs;
    cosines = run.input(run.normal(angles), rotation->table);
    sines = run.input(run.normal(angles), rotation->table);
    // Some turn back, some are behind the tables.
    const size_t count = rotation->of == EpilogueRotation::OfRows       ? s.m
                         : rotation->of == EpilogueRotation::OfSequence ? seq
                                                                        : s.m / seq + 1;
    positions =
        run.integers(count, rotation->of == EpilogueRotation::OfFirst ? 0 : -places, places + 2);
    positionsInput = run.integerInput(positions);
  }
  compute(x.values, w.values, epilogue, yt);
}

void Problem::compute(const std::vector<double> &rows, const std::vector<double> &weights,
                      const Epilogue &epilogue, Scalar yt) {
  want.resize((size_t)shape.m * shape.n);
  bound.resize(want.size());
  if (dry_)
    return;
  for (int i = 0; i < shape.m; ++i)
    for (int j = 0; j < shape.n; ++j) {
      double sum = 0, magnitude = 0;
      for (int k = 0; k < shape.k; ++k) {
        double p = rows[(size_t)i * shape.k + k] * weights[(size_t)j * shape.k + k];
        sum += p;
        magnitude += std::fabs(p);
      }
      size_t next = 0;
      for (const EpilogueStage &stage : epilogue) {
        double operand = 0;
        if (hasOperand(stage)) {
          const Tensor &t = operands[next++];
          operand = t.values[stage.kind == EpilogueStage::ScaleAll   ? 0
                             : stage.kind == EpilogueStage::ScaleRow ? i
                             : stage.kind == EpilogueStage::AddLastRows
                                 ? ((size_t)i * seq + std::max(0, lengths[i] - 1)) * shape.n + j
                             : stage.kind == EpilogueStage::AddBias || isScale(stage)
                                 ? j
                                 : (size_t)i * shape.n + j];
          magnitude = isScale(stage) ? magnitude * operand : magnitude + std::fabs(operand);
        }
        if (stage.kind == EpilogueStage::GeluTanhHalf)
          magnitude += std::fabs(sum) / 4096 / 2e-6;
        sum = apply(stage, sum, operand);
      }
      size_t at = (size_t)i * shape.n + j;
      want[at] = sum;
      // Sums of up to k terms, and the result's own rounding, also for subnormal halves.
      bound[at] = magnitude * sumError + (yt == Scalar::F16 ? std::ldexp(1.0, -25) : 0) +
                  (extra.empty() ? 0 : extra[at]);
    }
  if (isGated(epilogue))
    gatePairs({epilogue.back().ofGate});
  if (rotation)
    turnPairs();
}

int Problem::positionOf(int row) const {
  return rotation->of == EpilogueRotation::OfRows       ? positions[row]
         : rotation->of == EpilogueRotation::OfSequence ? positions[row % seq]
                                                        : positions[row / seq] + row % seq;
}

void Problem::turnPairs() {
  const EpilogueRotation &r = *rotation;
  for (int row = 0; row < shape.m; ++row)
    for (int col = 0; col + 1 < std::min(r.columns, shape.n); col += 2) {
      const int pair = col % r.headDim / 2, position = positionOf(row);
      if (pair >= r.pairs)
        continue;
      const size_t at = (size_t)row * shape.n + col,
                   angle = (size_t)std::min(std::abs(position), places - 1) * r.pairs + pair;
      const double c = cosines.values[angle], s = (position < 0 ? -1 : 1) * sines.values[angle];
      const double before[2] = {want[at], want[at + 1]};
      double error[2];
      for (int i : {0, 1})
        error[i] = bound[at + i] + relative(r.stored) * std::fabs(before[i]);
      want[at] = before[0] * c - before[1] * s;
      want[at + 1] = before[0] * s + before[1] * c;
      const double rounding = 1e-6 * (std::fabs(before[0]) + std::fabs(before[1]));
      bound[at] = error[0] * std::fabs(c) + error[1] * std::fabs(s) + rounding;
      bound[at + 1] = error[0] * std::fabs(s) + error[1] * std::fabs(c) + rounding;
    }
}

void Problem::gatePairs(EpilogueStage activation) {
  constexpr double slope = 1.13; // no activation is steeper
  for (size_t i = 0; i < want.size() / 2; ++i) {
    const double before = want[2 * i], gate = apply(activation, before, 0), up = want[2 * i + 1];
    const double ofGate = slope * bound[2 * i] + 2e-6 * std::fabs(before), ofUp = bound[2 * i + 1];
    want[i] = gate * up;
    bound[i] = std::fabs(up) * ofGate + (std::fabs(gate) + ofGate) * ofUp;
  }
  want.resize(want.size() / 2);
  bound.resize(want.size());
}

void Problem::computeNormalised(const std::vector<double> &rows, const Epilogue &epilogue,
                                Scalar xt, Scalar yt) {
  compute(rows, w.values, epilogue, yt);
  double squares = 0;
  for (double v : w.values)
    squares += v * v;
  const double flip = (xt == Scalar::F16    ? 3e-4
                       : xt == Scalar::BF16 ? 2.4e-3
                                            : 1e-6) *
                      std::sqrt(squares / (double)w.values.size() * shape.k);
  for (double &b : bound)
    b += flip;
}

Arguments Problem::arguments() const {
  Arguments list = {{"x", &x}, {"w", &w}, {"y", &y}, {"m", shape.m}};
  list.offer("n", shape.n).offer("k", shape.k);
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string name = "e" + std::to_string(i);
    list.set(name, &operands[i]);
    if (gathered == i)
      list.set(name + "Length", &lengthsInput).set(name + "Seq", seq);
  }
  if (rotation)
    list.set("cosines", &cosines)
        .set("sines", &sines)
        .set("positions", &positionsInput)
        .set("places", places)
        .set("rowsOfSequence", seq);
  return list;
}

Arguments Problem::mapped(int bm, int bn, int ofX, int ofW) const {
  return arguments()
      .drop("x")
      .drop("w")
      .set("xMap", MapOf{&x, shape.m, ofX, bm})
      .set("wMap", MapOf{&w, shape.n, ofW, bn});
}

void Problem::mapLast(Arguments &list, const std::string &name, int bm) const {
  list.drop("e" + std::to_string(operands.size() - 1))
      .set(name, MapOf{&operands.back(), shape.m, shape.n, bm});
}

void check(Run &run, int kernel, Problem &p, const Grid &grid, const Arguments &arguments, Scalar y,
           std::optional<double> share) {
  run.launch(kernel, grid, arguments);
  std::vector<double> first = run.read(p.y);
  run.launch(kernel, grid, arguments);
  run.expect(run.read(p.y) == first, "a second launch gave other bits");
  run.expectNear(p.y, p.want, share.value_or(relative(y)), p.bound);
}

std::vector<double> statisticsOf(const std::vector<double> &rows, int m, int n, int width) {
  std::vector<double> all;
  for (int part = 0; part < n / width; ++part)
    for (int i = 0; i < m; ++i) {
      const double *at = &rows[(size_t)i * n + part * width];
      double mean = 0, square = 0;
      for (int j = 0; j < width; ++j)
        mean += at[j] / width;
      for (int j = 0; j < width; ++j)
        square += (at[j] - mean) * (at[j] - mean);
      all.insert(all.end(), {mean, square});
    }
  return all;
}

std::vector<double> normalised(const Tensor &x, const std::vector<double> &gain,
                               const std::vector<double> &shift, int m, int k, NormKind norm,
                               double epsilon) {
  std::vector<double> rows(x.values);
  for (int i = 0; i < m; ++i) {
    double *row = &rows[(size_t)i * k];
    double mean = 0, square = 0;
    if (norm == NormKind::Layer) {
      for (int j = 0; j < k; ++j)
        mean += row[j];
      mean /= k;
    }
    for (int j = 0; j < k; ++j)
      square += (row[j] - mean) * (row[j] - mean);
    double scale = 1 / std::sqrt(square / k + epsilon);
    for (int j = 0; j < k; ++j)
      row[j] = rounded((row[j] - mean) * scale * gain[j] + (shift.empty() ? 0 : shift[j]), x.type);
  }
  return rows;
}

} // namespace gpt2c::kernels
