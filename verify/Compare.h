// How far what a plan computes is from what the exported graph computes.
#pragma once

#include "ir/Tensor.h"

#include <string>
#include <vector>

namespace gpt2c {

/// The difference of two tensors of equal shape, by rows along the last axis.
///
/// The error of a row is |got - expected| / |expected|, with Euclidean norms; of logits
/// |got - expected| / |expected - mean(expected)|: those of a trained model share an offset that no
/// probability depends on, and an error is judged against what is left. The divisor is at least
/// 1/100 of |expected|, and 1/1000 of its root mean square over all rows.
///
/// Where the export computes in half precision, each of `rounded` is what it computes so, in one of
/// the ways in which roundings may fall, and `expected` the same in double. A plan keeps some of
/// the export's roundings and drops others. With d_rs the error of row r of sample s,
///   explained_r = max(2 max over s of d_rs, 4 sqrt(mean over r, s of d_rs^2))
/// is what rounding explains of row r. A row with NaN or infinities on one side alone is left out
/// where one of the samples has such a row, too: the export itself overflows there.
struct Difference {
  double relative = 0;          ///< the largest error of a row; infinity where `lost`
  double beyond = 0;            ///< the largest of error - explained of a row
  double explained = 0;         ///< of that row; 0 without `rounded`
  double mostExplained = 0;     ///< the largest of any row
  int64_t at = -1;              ///< the element that differs most in that row; -1: none differs
  double got = 0, expected = 0; ///< its values
  int64_t finite = 0;           ///< elements that are finite on both sides
  int64_t overflows = 0;        ///< rows that are left out
  /// An element is NaN, or an infinity of one sign, on one side alone.
  bool lost = false;
};

enum class RowScale : uint8_t { Norm, Logits };
Difference compareRows(const Tensor &got, const Tensor &expected, RowScale scale = RowScale::Norm,
                       llvm::ArrayRef<Tensor> rounded = {});
/// The error of each row; infinity where it is lost.
std::vector<double> rowErrors(const Tensor &got, const Tensor &expected,
                              RowScale scale = RowScale::Norm);

/// "logits[0, 65, 17]: 1.25 instead of -0.5".
std::string describeElement(llvm::StringRef name, llvm::ArrayRef<int64_t> shape,
                            const Difference &difference);

/// Three digits: "0.00123", "1.2e-05".
std::string threeDigits(double v);

} // namespace gpt2c
