/// Products of a warpgroup on tensor cores, asynchronous (sm_90a). PTX ISA, "Asynchronous Warpgroup Level
/// Matrix Instructions: wgmma".
///
/// C[64][N] += A[64][16] B[16][N], 16-bit inputs, fp32 sums. Warp w of the four holds rows 16 w to 16 w + 15;
/// with g = lane / 4 and t = lane % 4 a lane holds of every 8 columns c, as mma.m16n8k16 has it,
///   - c[4c], c[4c + 1]: columns 2t and 2t + 1 of row g
///   - c[4c + 2], c[4c + 3]: the same of row g + 8
/// and of an A in registers what mma.m16n8k16 wants of it (ptx/mma.cuh).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace fa::internal::ptx {

/// Before the first product that reads registers which the warp has written, and between products and the
/// warp's own use of their accumulators.
__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/// Makes one group of the products since the last.
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most kPending of the newest groups are still under way.
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// The accumulators of N columns are N / 2 operands: in the instruction's text by number, eight at a time, and
// behind it by name.
#define FA_TEXT_1 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FA_TEXT_2 FA_TEXT_1 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FA_TEXT_3 FA_TEXT_2 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define FA_TEXT_4 FA_TEXT_3 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define FA_TEXT_5 FA_TEXT_4 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define FA_TEXT_6 FA_TEXT_5 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define FA_TEXT_7 FA_TEXT_6 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define FA_TEXT_8 FA_TEXT_7 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define FA_TEXT_9 FA_TEXT_8 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define FA_TEXT_10 FA_TEXT_9 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define FA_TEXT_11 FA_TEXT_10 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define FA_TEXT_12 FA_TEXT_11 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define FA_TEXT_13 FA_TEXT_12 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define FA_TEXT_14 FA_TEXT_13 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define FA_TEXT_15 FA_TEXT_14 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define FA_TEXT_16 FA_TEXT_15 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define FA_NAMES(i)                                                                           \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define FA_NAMES_1 FA_NAMES(0)
#define FA_NAMES_2 FA_NAMES_1, FA_NAMES(8)
#define FA_NAMES_3 FA_NAMES_2, FA_NAMES(16)
#define FA_NAMES_4 FA_NAMES_3, FA_NAMES(24)
#define FA_NAMES_5 FA_NAMES_4, FA_NAMES(32)
#define FA_NAMES_6 FA_NAMES_5, FA_NAMES(40)
#define FA_NAMES_7 FA_NAMES_6, FA_NAMES(48)
#define FA_NAMES_8 FA_NAMES_7, FA_NAMES(56)
#define FA_NAMES_9 FA_NAMES_8, FA_NAMES(64)
#define FA_NAMES_10 FA_NAMES_9, FA_NAMES(72)
#define FA_NAMES_11 FA_NAMES_10, FA_NAMES(80)
#define FA_NAMES_12 FA_NAMES_11, FA_NAMES(88)
#define FA_NAMES_13 FA_NAMES_12, FA_NAMES(96)
#define FA_NAMES_14 FA_NAMES_13, FA_NAMES(104)
#define FA_NAMES_15 FA_NAMES_14, FA_NAMES(112)
#define FA_NAMES_16 FA_NAMES_15, FA_NAMES(120)

// A and B in shared memory, both with their rows of 16 contiguous.
#define FA_WGMMA_SHARED(N, TYPE, BLOCKS, A, B, ACCUMULATE)                                  \
  asm volatile(                                                                             \
      "{\n"                                                                                 \
      ".reg .pred accumulate;\n"                                                            \
      "setp.ne.b32 accumulate, %" #ACCUMULATE                                               \
      ", 0;\n"                                                                              \
      "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" FA_TEXT_##BLOCKS \
      "}, %" #A ", %" #B                                                                    \
      ", accumulate, 1, 1, 0, 0;\n"                                                         \
      "}"                                                                                   \
      : FA_NAMES_##BLOCKS                                                                   \
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)))

// A in registers, B in shared memory with its columns contiguous.
#define FA_WGMMA_REGISTERS(N, TYPE, BLOCKS, A0, A1, A2, A3, B)                                       \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" FA_TEXT_##BLOCKS \
               "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", 1, 1, 1, 1;"                   \
               : FA_NAMES_##BLOCKS                                                                   \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

/// a, b: descriptors (tile/descriptor.cuh); B[n][k] has k contiguous. Without `accumulate` C is A B.
template <class T, int N>
__device__ void wgmma(float (&c)[N / 2], uint64_t a, uint64_t b, bool accumulate) {
  constexpr bool kHalf = std::is_same_v<T, __half>;
  if constexpr (N == 64 && kHalf) {
    FA_WGMMA_SHARED(64, "f16", 4, 32, 33, 34);
  } else if constexpr (N == 64) {
    FA_WGMMA_SHARED(64, "bf16", 4, 32, 33, 34);
  } else if constexpr (N == 80 && kHalf) {
    FA_WGMMA_SHARED(80, "f16", 5, 40, 41, 42);
  } else if constexpr (N == 80) {
    FA_WGMMA_SHARED(80, "bf16", 5, 40, 41, 42);
  } else if constexpr (N == 112 && kHalf) {
    FA_WGMMA_SHARED(112, "f16", 7, 56, 57, 58);
  } else if constexpr (N == 112) {
    FA_WGMMA_SHARED(112, "bf16", 7, 56, 57, 58);
  } else if constexpr (N == 128 && kHalf) {
    FA_WGMMA_SHARED(128, "f16", 8, 64, 65, 66);
  } else if constexpr (N == 128) {
    FA_WGMMA_SHARED(128, "bf16", 8, 64, 65, 66);
  } else {
    static_assert(N == 0, "this N is not written out");
  }
}

/// C += A B. a: registers; b: descriptor; B[k][n] has n contiguous.
template <class T, int N>
__device__ void wgmma(float (&c)[N / 2], const uint32_t (&a)[4], uint64_t b) {
  constexpr bool kHalf = std::is_same_v<T, __half>;
  if constexpr (N == 64 && kHalf) {
    FA_WGMMA_REGISTERS(64, "f16", 4, 32, 33, 34, 35, 36);
  } else if constexpr (N == 64) {
    FA_WGMMA_REGISTERS(64, "bf16", 4, 32, 33, 34, 35, 36);
  } else if constexpr (N == 96 && kHalf) {
    FA_WGMMA_REGISTERS(96, "f16", 6, 48, 49, 50, 51, 52);
  } else if constexpr (N == 96) {
    FA_WGMMA_REGISTERS(96, "bf16", 6, 48, 49, 50, 51, 52);
  } else if constexpr (N == 128 && kHalf) {
    FA_WGMMA_REGISTERS(128, "f16", 8, 64, 65, 66, 67, 68);
  } else if constexpr (N == 128) {
    FA_WGMMA_REGISTERS(128, "bf16", 8, 64, 65, 66, 67, 68);
  } else if constexpr (N == 192 && kHalf) {
    FA_WGMMA_REGISTERS(192, "f16", 12, 96, 97, 98, 99, 100);
  } else if constexpr (N == 192) {
    FA_WGMMA_REGISTERS(192, "bf16", 12, 96, 97, 98, 99, 100);
  } else if constexpr (N == 256 && kHalf) {
    FA_WGMMA_REGISTERS(256, "f16", 16, 128, 129, 130, 131, 132);
  } else if constexpr (N == 256) {
    FA_WGMMA_REGISTERS(256, "bf16", 16, 128, 129, 130, 131, 132);
  } else {
    static_assert(N == 0, "this N is not written out");
  }
}

#undef FA_WGMMA_SHARED
#undef FA_WGMMA_REGISTERS
#undef FA_NAMES
#undef FA_NAMES_1
#undef FA_TEXT_1
#undef FA_NAMES_2
#undef FA_TEXT_2
#undef FA_NAMES_3
#undef FA_TEXT_3
#undef FA_NAMES_4
#undef FA_TEXT_4
#undef FA_NAMES_5
#undef FA_TEXT_5
#undef FA_NAMES_6
#undef FA_TEXT_6
#undef FA_NAMES_7
#undef FA_TEXT_7
#undef FA_NAMES_8
#undef FA_TEXT_8
#undef FA_NAMES_9
#undef FA_TEXT_9
#undef FA_NAMES_10
#undef FA_TEXT_10
#undef FA_NAMES_11
#undef FA_TEXT_11
#undef FA_NAMES_12
#undef FA_TEXT_12
#undef FA_NAMES_13
#undef FA_TEXT_13
#undef FA_NAMES_14
#undef FA_TEXT_14
#undef FA_NAMES_15
#undef FA_TEXT_15
#undef FA_NAMES_16
#undef FA_TEXT_16

}  // namespace fa::internal::ptx
