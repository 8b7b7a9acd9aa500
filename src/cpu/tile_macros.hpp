/// What the compilers spell differently.
#pragma once

// A register tile stays in registers only where every loop over it is unrolled and every step inlined.
#if defined(__clang__)
#define FA_INLINE inline __attribute__((always_inline))
#define FA_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define FA_INLINE inline __attribute__((always_inline))
#define FA_UNROLL _Pragma("GCC unroll 16")
#else
#define FA_INLINE inline
#define FA_UNROLL
#endif
