// Records of stages on the device; see records.h.
#pragma once

#include "templates/decode_step/common/records.h"
#include "templates/device/common.cuh"

namespace gpt2c::persistent {

/// What stands for a word of a record here.
struct Words {
  struct Unused {
    u64 word;
  };
  struct Integer {
    u64 word;
    __device__ __forceinline__ operator int() const { return (int)word; }
  };
  /// Bytes of memory.
  struct Size {
    u64 word;
    __device__ __forceinline__ operator u64() const { return word; }
  };
  struct Real {
    u64 word;
    __device__ __forceinline__ operator float() const { return __uint_as_float((unsigned)word); }
  };
  struct Pair {
    u64 word;
    __device__ __forceinline__ int low() const { return (int)(word & 0xffff); }
    __device__ __forceinline__ int high() const { return (int)(word >> 16 & 0xffff); }
  };
  /// Units of a stage, and the first of this block, which run() notes in shared memory; others are
  /// blocks apart.
  struct Units {
    u64 word;
    __device__ __forceinline__ int count() const { return (int)word; }
    __device__ __forceinline__ int first() const { return (int)(word >> 32); }
    __device__ __forceinline__ void setFirst(int first) {
      word = (u64)(unsigned)first << 32 | (unsigned)word;
    }
  };
  /// Memory of a step's area of channels: an address once what it is behind has been added.
  struct Channel {
    u64 word;
  };
  template <typename T> struct Address {
    u64 word;
    __device__ __forceinline__ operator T *() const { return reinterpret_cast<T *>(word); }
    /// Of elements whose type is that of an instance.
    template <typename U> __device__ __forceinline__ U *as() const {
      return reinterpret_cast<U *>(word);
    }
  };
};

struct Record {
  u64 word[recordWords];
  template <template <typename> class R> __device__ __forceinline__ const R<Words> &as() const {
    static_assert(sizeof(R<Words>) == sizeof(R<PlainWords>));
    return *reinterpret_cast<const R<Words> *>(word);
  }
  template <template <typename> class R> __device__ __forceinline__ R<Words> &as() {
    static_assert(sizeof(R<Words>) == sizeof(R<PlainWords>));
    return *reinterpret_cast<R<Words> *>(word);
  }
};

} // namespace gpt2c::persistent
