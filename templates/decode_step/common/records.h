// What host and device agree on for @generate: constants, the configurations of its kernels, and
// the records of its stages.
//
// The compiler includes this file, and so do the kernels, in which it is embedded: C++17, without
// any other header.
//
// A record is up to 16 words of 8 bytes, each of which the plan has as one argument; the loader
// puts addresses in their places and uploads the records of all stages, each padded to 16 words.
// So a record is a struct over W, what stands for a word on a side: its Integer, Real, Pair, Units,
// Size, Channel and Address<T> have 8 bytes each. On the device they are values
// (record.cuh), on the host arguments of the plan (PersistentRecords.h), whose kinds they tell
// apart: nothing that the loader has to relocate can be taken for a number.
#pragma once

namespace gpt2c {
enum class Activation : unsigned char; // ir/Activations.h
enum class NormKind : unsigned char;   // ir/Norms.h, templates/device/norm_kind.cuh
} // namespace gpt2c

namespace gpt2c::persistent {

// Constants
// -------------------------------------------------------------------------------------------------

constexpr int recordWords = 16;
/// Blocks that take part; further ones end at once.
constexpr int maxBlocks = 256;

// Stages of blocks: stages/stages.cuh
constexpr int warps = 8; ///< that compute
constexpr int unitRows = 8, mostRoundUnits = 4;

// Thread block clusters: clusters/clusters.cuh
constexpr int clusterBlocks = 8, clusterHeadDim = 64, clusterKeys = 16; ///< keys of a tile
/// Warps of a block beside one for each head: the helper, and those that load.
constexpr int clusterHelpers = 1, clusterLoaders = 3;
/// Tokens of a page of the state, where it is in pages.
constexpr int clusterPageTokens = 64;

/// Words of 8 bytes behind the channels: the best logit of each row that each block has, of three
/// steps, and a word that counts steps mod 6.
constexpr int choiceWords(int rows) { return 3 * rows * maxBlocks + 1; }
/// In clusters the step's number is in the word of one sequence, with room up to clusterChoicesAt
/// times maxBlocks words; then the choices of each row or, of one sequence, copies for each rank.
constexpr int clusterChoicesAt = 4;
constexpr int clusterChoiceWords(int rows) {
  return (clusterChoicesAt + 3 * (rows < clusterBlocks ? clusterBlocks : rows)) * maxBlocks;
}
/// The same where members choose together: of two steps, those of all members' blocks.
constexpr int memberChoiceWords(int rows, int members) {
  return (clusterChoicesAt + 2 * (rows < clusterBlocks ? clusterBlocks : rows) * members) *
         maxBlocks;
}

// Configurations
// -------------------------------------------------------------------------------------------------

// clang-format off
enum class Element {
#define ELEMENT_TYPE(Name, Type) Name,
#include "templates/decode_step/common/configs.def"
};

#define CONFIG(Name) struct Name##Config {
#define ELEMENT(Name) Element Name;
#define VALUE(Type, Name) Type Name;
#ifdef __CUDACC__
#define FUNCTION(Name)
#else
#define FUNCTION(Name) Activation Name = {};
#endif
#define END_CONFIG };
#include "templates/decode_step/common/configs.def"
// clang-format on

// Records of stages of blocks
// -------------------------------------------------------------------------------------------------

/// What stage a record is for; form i of the linears is LinearStage + i. The record of the step is
/// the last and has no kind.
enum StageKind { EmbedStage, AttentionStage, LinearStage };

/// What all stages have. Unit u of a stage belongs to block (u + units of all stages before) mod
/// blocks. A unit of a stage with weights is unitRows rows of them. They come in rounds of several
/// units, and those chunk by chunk: a slot holds one chunk of one unit, row by row.
template <typename W> struct Stage {
  typename W::Pair kind; ///< StageKind, and units of a round
  typename W::Units units;
  typename W::template Address<const char> weights; ///< null: none
  typename W::Integer rows;                         ///< of the weights
  typename W::Integer rowBytes;
  typename W::Pair chunk; ///< its bytes of a row, and the distance of rows in a slot
};

/// y[b,:] = tokens[id_b,:] + positions[past_b,:]
template <typename W> struct EmbedRecord {
  Stage<W> stage;
  typename W::template Address<const void> tokens, positions; ///< W[vocab,D], Y[count,D]
  typename W::Integer positionCount;
  typename W::Channel y;                            ///< Y[Rows,D]
  typename W::template Address<const float> scales; ///< [vocab,Groups], or null
};

/// Sequence b of the state is that of row b.
template <typename W> struct AttentionRecord {
  Stage<W> stage;
  typename W::Channel qkv;               ///< X[Rows,3,Heads,HeadDim]
  typename W::template Address<void> kv; ///< the state
  typename W::Channel out;               ///< X[Rows,Heads,Splits,HeadDim], divided by their sums
  typename W::Channel maxima;            ///< f32[Rows,Heads,Splits,2]: of base 2 exponents, and
                                         ///< sums; null where Splits is 1
  typename W::Integer layer, batchMax, context; ///< of the state
  typename W::Real scale;                       ///< of scores
  typename W::Integer batch;
};

/// The norm of a product's input and what follows the product; see stages/linear.cuh.
template <typename W> struct LinearTerms {
  typename W::Channel maxima;                    ///< of an x in parts; see AttentionRecord
  typename W::template Address<const void> gain; ///< T[K]
  typename W::Real epsilon;
  typename W::template Address<const float> sums, bias, scales; ///< [N]: c, b', of int8 weights
};
template <typename W> struct LinearRecord {
  Stage<W> stage;
  typename W::Channel x, y; ///< T[Rows,K], T[Rows,N]
  LinearTerms<W> terms;
  typename W::Channel residual; ///< T[Rows,N]
};
/// A linear whose result is the logits, of which each block chooses the largest.
template <typename W> struct LogitsRecord {
  Stage<W> stage;
  typename W::Channel x;                      ///< T[Rows,K]
  typename W::template Address<float> logits; ///< [batch,N]
  LinearTerms<W> terms;
  typename W::Integer batch;
};

/// The last record: how often the step runs, and what it begins and ends with. The tokens of its
/// `batch` sequences go to `tokens` from row *stepIndex on, which is raised by `steps`. Channels
/// are two areas of channelBytes, each whole copies of copyBytes; behind them are the choices. All
/// of it is zero before the first launch.
///
/// With a state in pages `stage` has the numbers of each sequence's pages, `rows` of them in the
/// place of `weights`; it is one step, and nothing but `next` is written.
template <typename W> struct StepRecord {
  Stage<W> stage; ///< without units
  typename W::Integer steps;
  typename W::template Address<int> ids, past, next, tokens, stepIndex;
  typename W::template Address<char> channels;
  typename W::Size channelBytes;
  typename W::Integer copyBytes;
  typename W::Integer batch;
};

// Records of thread block clusters
// -------------------------------------------------------------------------------------------------

/// The embedding, as EmbedRecord, the tables of what heads turn by, if they do, and what they are
/// normed with. Its words are where those of a half are.
template <typename W> struct ClusterEmbedRecord {
  typename W::Unused unused0[1];
  typename W::template Address<const void> tokens;
  typename W::Unused unused2[2];
  typename W::template Address<const float> scales;
  typename W::Unused unused5[2];
  typename W::template Address<const void> positions;
  typename W::template Address<const float> cosines, sines; ///< [angleCount,Rotary]
  typename W::Unused unused10[1];
  typename W::template Address<const float> gains; ///< [layers,Heads+KeyHeads,HeadDim], or null
  typename W::Real gainEpsilon;
  typename W::Integer angleCount;
  typename W::Integer positionCount;
};

/// A product behind a norm.
template <typename W> struct FirstProduct {
  typename W::Real normScale;                       ///< what undoes the scale of the gain
  typename W::template Address<const void> weights; ///< W[rows,D]
  typename W::template Address<const float> sums, bias, scales; ///< [rows]: c, b', of int8 weights
  typename W::template Address<const void> gain;                ///< T[D], or unused
  typename W::Real epsilon;
};

/// Half of a layer: two products, the second of which adds to x. The MLP is no more.
template <typename W> struct HalfRecord {
  FirstProduct<W> first;
  typename W::template Address<const void> weights;       ///< of the second product: W[D,width]
  typename W::template Address<const float> bias, scales; ///< [D]
  typename W::Channel partials;                           ///< [sources,D]: fp32, of rows fp16
};
/// With attention between them.
template <typename W> struct HeadRecord {
  HalfRecord<W> half;
  typename W::template Address<void> kv;        ///< the state
  typename W::Integer layer, batchMax, context; ///< of the state; in pages there is no batchMax
  typename W::Real scale;                       ///< of scores
};

template <typename W> struct VocabularyRecord {
  FirstProduct<W> first;
  typename W::template Address<float> logits; ///< [batch,Vocab]
  /// How sequences are drawn by temperature: SampleRow[batch], or null; in clusters with a state in
  /// pages.
  typename W::template Address<const int> choices;
  /// In shares that are one member's: where members meet (templates/exchange), else null.
  typename W::template Address<void> exchange;
};

// Layout
// -------------------------------------------------------------------------------------------------

/// Words as the loader writes them.
struct PlainWords {
  using Word = unsigned long long;
  using Integer = Word;
  using Real = Word;
  using Pair = Word;
  using Units = Word;
  using Size = Word;
  using Channel = Word;
  using Unused = Word;
  template <typename> using Address = Word;
};

/// Words of a record.
template <template <typename> class R>
constexpr int wordsOf = (int)(sizeof(R<PlainWords>) / sizeof(PlainWords::Word));

static_assert(sizeof(PlainWords::Word) == 8 && sizeof(void *) == 8);
static_assert(wordsOf<Stage> == 6 && wordsOf<LinearTerms> == 6 && wordsOf<FirstProduct> == 7);
static_assert(wordsOf<EmbedRecord> == 11 && wordsOf<AttentionRecord> == 15);
static_assert(wordsOf<LinearRecord> == 15 && wordsOf<LogitsRecord> == 15);
static_assert(wordsOf<StepRecord> == recordWords && wordsOf<HeadRecord> == recordWords);
static_assert(wordsOf<ClusterEmbedRecord> == 15 && wordsOf<HalfRecord> == 11);
static_assert(wordsOf<VocabularyRecord> == 10);

// What is read of a record whose kind is not known has one place in all of them.
#ifndef __CUDACC_RTC__ // which has no offsetof
#define AT_WORD(Record, member, word)                                                              \
  static_assert(__builtin_offsetof(Record<PlainWords>, member) == 8 * (word))
AT_WORD(EmbedRecord, stage, 0);
AT_WORD(AttentionRecord, stage, 0);
AT_WORD(LinearRecord, stage, 0);
AT_WORD(LogitsRecord, stage, 0);
AT_WORD(StepRecord, stage, 0);
AT_WORD(LinearRecord, terms, 8);
AT_WORD(LogitsRecord, terms, 8);
AT_WORD(HalfRecord, first, 0);
AT_WORD(HeadRecord, half, 0);
AT_WORD(VocabularyRecord, first, 0);
#undef AT_WORD
#endif

} // namespace gpt2c::persistent
