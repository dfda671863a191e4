// Records of stages on the host: templates/decode_step/common/records.h.
#pragma once

#include "plan_generated.h"
#include "templates/decode_step/common/records.h"

#include <array>
#include <bit>
#include <cassert>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

namespace gpt2c::persistent {

/// What stands for a word of a record here: the number of an argument of the plan, as
/// RecordArguments has it, so that a record is as large as on the device. Words of different kinds
/// are different types; the loader relocates Channel and Address. What nobody has set is found when
/// the record is written.
struct HostWords {
  template <typename Kind> struct Word {
    uint64_t argument = ~uint64_t(0);
  };
  using Integer = Word<struct IntegerKind>;
  using Real = Word<struct RealKind>;
  using Pair = Word<struct PairKind>;
  using Units = Word<struct UnitsKind>;
  using Size = Word<struct SizeKind>;
  using Channel = Word<struct ChannelKind>;
  using Pointer = Word<struct PointerKind>;
  template <typename> using Address = Pointer;
  struct Unused {
    uint64_t argument = 0; ///< that of null
  };
};

/// A record of any stage.
using StageRecord =
    std::variant<EmbedRecord<HostWords>, AttentionRecord<HostWords>, LinearRecord<HostWords>,
                 LogitsRecord<HostWords>, StepRecord<HostWords>, ClusterEmbedRecord<HostWords>,
                 HeadRecord<HostWords>, HalfRecord<HostWords>, VocabularyRecord<HostWords>>;

/// The arguments that the words of a function's records stand for.
class RecordArguments {
public:
  RecordArguments() { arguments_.emplace_back().kind = plan::ArgKind::Null; }

  /// Numbers: expressions of 32 bits.
  HostWords::Integer integer(plan::ArgT value) { return {number(std::move(value))}; }
  HostWords::Units units(plan::ArgT value) { return {number(std::move(value))}; }
  HostWords::Size size(plan::ArgT value) { return {number(std::move(value))}; }
  HostWords::Pair pair(plan::ArgT value) { return {number(std::move(value))}; }
  HostWords::Real real(plan::ArgT value) {
    assert(value.kind == plan::ArgKind::F32);
    return {add(std::move(value))};
  }
  /// What is at byte `offset` of the function's scratch, in a step's area of channels.
  HostWords::Channel channel(int64_t offset) {
    plan::ArgT place;
    place.kind = plan::ArgKind::Scratch;
    place.index = int(offset);
    return {add(std::move(place))};
  }
  HostWords::Channel noChannel() const { return {0}; }
  HostWords::Pointer address(plan::ArgT place) {
    assert(place.kind != plan::ArgKind::I32 && place.kind != plan::ArgKind::I64 &&
           place.kind != plan::ArgKind::F32);
    return {add(std::move(place))};
  }
  HostWords::Pointer null() const { return {0}; }

  const plan::ArgT &operator[](HostWords::Channel word) const { return arguments_[word.argument]; }
  const plan::ArgT &operator[](HostWords::Pointer word) const { return arguments_[word.argument]; }

  /// The arguments of a record, in the order of its words.
  std::vector<std::unique_ptr<plan::ArgT>> of(const StageRecord &record) const {
    std::vector<std::unique_ptr<plan::ArgT>> arguments;
    std::visit(
        [&](const auto &words) {
          for (uint64_t i : std::bit_cast<std::array<uint64_t, sizeof(words) / 8>>(words)) {
            assert(i < arguments_.size() && "every member of a record has been set");
            arguments.push_back(std::make_unique<plan::ArgT>(arguments_[i]));
          }
        },
        record);
    return arguments;
  }

private:
  uint64_t add(plan::ArgT argument) {
    arguments_.push_back(std::move(argument));
    return arguments_.size() - 1;
  }
  uint64_t number(plan::ArgT value) {
    assert(value.kind == plan::ArgKind::I32);
    return add(std::move(value));
  }

  std::vector<plan::ArgT> arguments_; ///< the first is null
};

} // namespace gpt2c::persistent
