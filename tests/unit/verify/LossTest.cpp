// How differences are measured: row by row, less what rounding explains, and over all rows.
#include "verify/Loss.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace gpt2c;

namespace {

Tensor rows(std::initializer_list<float> values, int64_t width) {
  Tensor t(DType::F32, {int64_t(values.size()) / width, width});
  std::copy(values.begin(), values.end(), t.data<float>());
  return t;
}

TEST(CompareRows, WhatRoundingExplainsIsTwiceTheRowsOwnOrFourTimesThatOfATypicalRow) {
  const Tensor expected = rows({1, 0, 0, 1, 1, 0}, 2), rounded = rows({1, 0.3F, 0, 1, 1, 0}, 2),
               got = rows({1, 0, 0, 1, 2.5F, 0}, 2);
  const Difference plain = compareRows(got, expected);
  EXPECT_NEAR(plain.beyond, 1.5, 1e-6);
  EXPECT_EQ(plain.explained, 0);
  const double typical = 0.3 / std::sqrt(3.0);
  const Difference d = compareRows(got, expected, RowScale::Norm, rounded);
  EXPECT_NEAR(d.explained, 4 * typical, 1e-6);
  EXPECT_NEAR(d.mostExplained, 4 * typical, 1e-6);
  EXPECT_NEAR(d.beyond, 1.5 - 4 * typical, 1e-6);
  EXPECT_NEAR(d.relative, 1.5, 1e-6);
  const Tensor nearer = rows({1, 0, 0, 1, 1.6F, 0}, 2);
  EXPECT_EQ(compareRows(nearer, expected, RowScale::Norm, rounded).beyond, 0);
  // Of many rows one that is far off explains itself.
  Tensor many(DType::F32, {100, 1}), off(DType::F32, {100, 1});
  std::fill_n(many.data<float>(), 100, 1);
  std::fill_n(off.data<float>(), 100, 1);
  off.data<float>()[7] = 1.3F;
  EXPECT_NEAR(compareRows(many, many, RowScale::Norm, off).mostExplained, 0.6, 1e-6);
}

TEST(CompareRows, ARowIsGivenTheLargestOfSeveralSamples) {
  const Tensor expected = rows({1, 0, 0, 1, 1, 0, 1, 0}, 2),
               samples[] = {rows({1, 0.1F, 0, 1, 1, 0, 1, 0}, 2),
                            rows({1, 0.4F, 0, 1, 1, 0, 1, 0}, 2)},
               got = rows({1, 0.8F, 0, 1, 1, 0, 1, 0}, 2);
  const double typical = std::sqrt((0.01 + 0.16) / 8);
  const Difference d = compareRows(got, expected, RowScale::Norm, samples);
  EXPECT_EQ(d.beyond, 0);
  EXPECT_NEAR(d.mostExplained, 0.8, 1e-6);
  const Tensor further = rows({1, 0, 0, 1, 1, 0, 1, 0.9F}, 2);
  EXPECT_NEAR(compareRows(further, expected, RowScale::Norm, samples).beyond, 0.9 - 4 * typical,
              1e-6);
}

TEST(CompareRows, RowsThatOverflowExplainNothing) {
  const Tensor expected = rows({1, 2}, 2), rounded = rows({INFINITY, 2}, 2), got = rows({1, 3}, 2);
  const Difference d = compareRows(got, expected, RowScale::Norm, rounded);
  EXPECT_EQ(d.explained, 0);
  EXPECT_NEAR(d.beyond, 1 / std::sqrt(5.0), 1e-6);
}

TEST(CompareRows, RowsThatOverflowInTheExportTooAreLeftOut) {
  const Tensor expected = rows({1, 2, 3, 4}, 2), rounded = rows({NAN, 2, 3, 4}, 2),
               got = rows({NAN, NAN, 3, 4}, 2), other = rows({1, 2, INFINITY, 4}, 2);
  const Difference d = compareRows(got, expected, RowScale::Norm, rounded);
  EXPECT_FALSE(d.lost);
  EXPECT_EQ(d.overflows, 1);
  EXPECT_EQ(d.relative, 0);
  EXPECT_TRUE(compareRows(got, expected).lost);
  EXPECT_TRUE(compareRows(other, expected, RowScale::Norm, rounded).lost);
}

TEST(Loss, OneRowThatIsLostIsNotTheMedian) {
  Loss loss;
  loss.add(rows({1, 0, 0, 9, 1, 0}, 2), rows({1, 0, 0, 1, 1, 0}, 2), RowScale::Norm);
  EXPECT_EQ(loss.rows(), 3);
  EXPECT_EQ(loss.median(), 0);
  loss.add(rows({2, 0, 2, 0}, 2), rows({1, 0, 1, 0}, 2), RowScale::Norm);
  EXPECT_EQ(loss.median(), 1);
}

TEST(Loss, InformationIsWhatAPlanLosesThatKnowsNothingOfTheText) {
  // Two rows, sure of one token each.
  Loss sure;
  sure.add(rows({0, 50, 50, 0}, 2), rows({50, 0, 0, 50}, 2), RowScale::Logits);
  EXPECT_NEAR(sure.information(), std::log(2.0), 1e-9);
  EXPECT_NEAR(sure.divergence(), 50, 1e-9);
  // A plan that gives both the mean: the divergence is the information.
  Loss none;
  none.add(rows({0, 0, 0, 0}, 2), rows({50, 0, 0, 50}, 2), RowScale::Logits);
  EXPECT_NEAR(none.divergence(), none.information(), 1e-9);
}

} // namespace
