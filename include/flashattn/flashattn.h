/* libflashattn: exact attention for C and C++ programs. The C interface (C99).
 *
 *   O = softmax(scale * Q K^T + mask) V,   LSE = ln sum exp(scale * q.k)   per row,
 *
 * and the gradients of Q, K and V, computed tile by tile, without storing the score matrix (Dao et al.,
 * FlashAttention, 2022; Dao, FlashAttention-2, 2023). docs/conventions.md fixes the meaning of every
 * argument.
 *
 * Functions that can fail return a status; none throws, exits or aborts. A call that does not
 * return FA_OK has launched nothing and written nothing, except where FA_CUDA_ERROR reports a failed
 * launch. fa_last_error() has the text.
 */
#ifndef FLASHATTN_FLASHATTN_H
#define FLASHATTN_FLASHATTN_H

#include <stddef.h>
#include <stdint.h>

#define FLASHATTN_VERSION_MAJOR 0
#define FLASHATTN_VERSION_MINOR 1
#define FLASHATTN_VERSION_PATCH 0
#define FLASHATTN_VERSION \
  (FLASHATTN_VERSION_MAJOR * 10000 + FLASHATTN_VERSION_MINOR * 100 + FLASHATTN_VERSION_PATCH)

/* FLASHATTN_STATIC is set by the static library's CMake target and pkg-config file: a program's own
 * copy stays hidden in it. */
#if defined(FLASHATTN_STATIC)
#define FA_API
#elif defined(_WIN32)
#if defined(FLASHATTN_BUILDING)
#define FA_API __declspec(dllexport)
#else
#define FA_API __declspec(dllimport)
#endif
#else
#define FA_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The CUDA stream. No CUDA header is needed for its name. */
struct CUstream_st;

/* What a call returns. */
typedef int32_t fa_status;
enum {
  FA_OK = 0,
  FA_INVALID_ARGUMENT = 1, /* an argument breaks a documented rule */
  FA_UNSUPPORTED = 2,      /* a valid problem that the named kernel, this build or this device cannot do */
  FA_OUT_OF_MEMORY = 3,    /* host or device memory could not be had */
  FA_CUDA_ERROR = 4,       /* the CUDA runtime or driver refused; no usable device */
  FA_INTERNAL_ERROR = 5    /* a fault of the library itself */
};

/* Element types. 0 is none, so that a forgotten field is an error. */
typedef int32_t fa_dtype;
enum {
  FA_DTYPE_NONE = 0,
  FA_FLOAT32 = 1,
  FA_FLOAT16 = 2, /* IEEE binary16 */
  FA_BFLOAT16 = 3
};

/* The rungs of the ladder, the CPU backend, and the choice among them. */
typedef int32_t fa_version;
enum {
  FA_AUTO = -1, /* the best one for the problem on the device */
  FA_V0 = 0,    /* unfused */
  FA_V1 = 1,    /* FlashAttention-1 */
  FA_V2 = 2,    /* FlashAttention-2, simplified */
  FA_V3 = 3,    /* warp-local, state in registers */
  FA_V4 = 4,    /* vector copies, padding, 32-bit indexing */
  FA_V5 = 5,    /* tensor cores by WMMA */
  FA_V6 = 6,    /* fast exponential, butterfly reductions */
  FA_V7 = 7,    /* Ampere: mma.sync, cp.async, ldmatrix */
  FA_V8 = 8,    /* Hopper: TMA, WGMMA */
  FA_CPU = 100  /* the CPU backend */
};

/* The pass a kernel computes. */
typedef int32_t fa_pass;
enum { FA_PASS_FORWARD = 0, FA_PASS_BACKWARD = 1 };

/* Where a call runs: it follows the pointers. */
typedef int32_t fa_placement;
enum { FA_ON_HOST = 0, FA_ON_DEVICE = 1 };

/* A tensor in logical order [batch, head, sequence, feature]. Strides are in elements; stride[3] must
 * be 1 and none may be negative. Inputs may have stride 0 (broadcast). `data` may be null where a size
 * is 0. This struct never changes. */
typedef struct fa_tensor {
  void* data;
  fa_dtype dtype;
  int32_t reserved; /* 0 */
  int64_t size[4];
  int64_t stride[4];
} fa_tensor;

/* Where query 0 stands among the keys. */
enum {
  FA_BOTTOM_RIGHT = 0, /* query i stands at key i + N - M: the last query sees the last key */
  FA_TOP_LEFT = 1      /* query i stands at key i */
};

/* Which keys a query sees: with p its position, p - left <= j <= p + right, both inclusive; -1 is
 * unbounded. Causal is {-1, 0}. Full is {-1, -1}. This struct never changes. */
typedef struct fa_mask {
  int64_t left;
  int64_t right;
  int32_t alignment; /* FA_BOTTOM_RIGHT or FA_TOP_LEFT */
  int32_t reserved;  /* 0 */
} fa_mask;

/* The arguments of the forward pass. Set them with fa_forward_args_init, then fill the tensors.
 *
 * `size` is sizeof(fa_forward_args) as the caller compiled it. Later versions only append fields, whose
 * zero is their default: a shorter struct is completed with defaults, and a longer one is accepted as
 * long as the bytes unknown to this library are zero (else FA_UNSUPPORTED).
 *
 * Sizes: H mod Hk = 0, query head h reads key head h / (H / Hk). B, M, N may be 0; H, Hk, D, Dv are at
 * least 1; M and N at most 2^30, every other size at most 2^31 - 1.
 * A row that sees no key is O = 0, LSE = -infinity. */
typedef struct fa_forward_args {
  size_t size;
  fa_tensor q;           /* [B, H, M, D] */
  fa_tensor k;           /* [B, Hk, N, D], the dtype of q */
  fa_tensor v;           /* [B, Hk, N, Dv], the dtype of q */
  fa_tensor out;         /* [B, H, M, Dv]; shares no element with an input or with itself */
  float* lse;            /* [B, H, M] contiguous, natural logarithm, or null */
  fa_mask mask;          /* full unless set */
  float scale;           /* multiplies q.k; read where scale_is_set, literally: 0 and negative too */
  int32_t scale_is_set;  /* 0: the scale is 1/sqrt(D) */
  int32_t threads;       /* CPU backend: 0 is FLASHATTN_NUM_THREADS, or else the hardware's number */
  int32_t reserved;      /* 0 */
  void* workspace;       /* null: the library finds its own; else memory on the side of the tensors, 256-byte
                            aligned */
  size_t workspace_size; /* bytes, at least fa_forward_workspace_size's answer */
} fa_forward_args;

/* The arguments of the backward pass: with a loss whose gradient with respect to O is dout, the gradients
 * with respect to Q, K and V. Set them with fa_backward_args_init, then fill the tensors. mask and scale must
 * be the forward call's.
 *
 * `size` and the sizes as in fa_forward_args. The gradients share one element type. Neither of them shares an
 * element with any other tensor; slices of one packed buffer share none. With grouped heads dk and dv of a
 * key head are sums over the query heads that read it. A row that sees no key has dq = 0 and adds nothing to
 * dk and dv; with M or N of 0 what has elements becomes 0. */
typedef struct fa_backward_args {
  size_t size;
  fa_tensor q;           /* [B, H, M, D] */
  fa_tensor k;           /* [B, Hk, N, D], the dtype of q */
  fa_tensor v;           /* [B, Hk, N, Dv], the dtype of q */
  fa_tensor out;         /* [B, H, M, Dv], as forward wrote it, the dtype of q */
  fa_tensor dout;        /* [B, H, M, Dv], the dtype of q; may have stride 0 */
  fa_tensor dq;          /* [B, H, M, D] */
  fa_tensor dk;          /* [B, Hk, N, D], the dtype of dq */
  fa_tensor dv;          /* [B, Hk, N, Dv], the dtype of dq */
  const float* lse;      /* [B, H, M] contiguous, as forward wrote it; null only where B or M is 0 */
  fa_mask mask;          /* full unless set */
  float scale;           /* multiplies q.k; read where scale_is_set, literally: 0 and negative too */
  int32_t scale_is_set;  /* 0: the scale is 1/sqrt(D) */
  int32_t threads;       /* CPU backend: 0 is FLASHATTN_NUM_THREADS, or else the hardware's number */
  int32_t deterministic; /* 1: the same bits in every run, at some cost in time. The CPU backend always is */
  void* workspace;       /* null: the library finds its own; else memory on the side of the tensors, 256-byte
                            aligned */
  size_t workspace_size; /* bytes, at least fa_backward_workspace_size's answer */
} fa_backward_args;

/* What a call would do. `size` is set by the caller to sizeof(fa_forward_plan); fields that do not fit
 * are left out. */
typedef struct fa_forward_plan {
  size_t size;
  int32_t runs;       /* 1: some kernel takes the problem */
  fa_version version; /* the rung that runs, a stand-in's own number; where none does, what was asked for */
  fa_placement placement; /* FA_ON_HOST or FA_ON_DEVICE */
  int32_t device;         /* CUDA ordinal; -1 on the host */
  int32_t threads;        /* CPU backend: at most how many threads; 0 on the device */
  int32_t reserved;
  size_t workspace_size; /* bytes the kernel needs */
  const char* kernel;    /* its name; static storage; null where nothing runs */
} fa_forward_plan;

/* The same of fa_backward. */
typedef struct fa_forward_plan fa_backward_plan;

/* One row of the kernel table. Every build lists every row. */
typedef struct fa_kernel_info {
  size_t size;
  fa_pass pass;
  fa_version version;
  fa_dtype dtype;       /* of q, k and v */
  int32_t built;        /* 0: this build left its code out; `limits` still holds */
  const char* name;     /* "v2_flash2"; static storage */
  const char* limits;   /* one line: what it takes; static storage */
  const char* stand_in; /* the row that serves what this one rejects, or null */
} fa_kernel_info;

/* How the library was built. */
typedef struct fa_build_info {
  size_t size;
  int32_t version;           /* FLASHATTN_VERSION of the library */
  int32_t cuda;              /* CUDA toolkit version, 13000 for 13.0; 0 without CUDA */
  const char* architectures; /* "80;90-real;90a-real"; "" without CUDA */
  const char* simd;          /* "highway 1.0.3" or "plain" */
  const char* simd_target;   /* what the CPU backend uses on this machine: "AVX-512", "AVX2", ... */
  const char* compiler;      /* "GNU 12.2.0" */
  const char* build_type;    /* "Release" */
} fa_build_info;

/* ---- forward ------------------------------------------------------------------------------------- */

/* Sets *args to the defaults: no tensors (their stride[3] is 1), no LSE, a full mask, the scale 1/sqrt(D).
 * `size` is sizeof(fa_forward_args) as the caller compiled it; of a newer header's struct, the bytes that
 * this library does not know become zero. FA_INVALID_ARGUMENT: args is null, or no header had that size. */
FA_API fa_status fa_forward_args_init(fa_forward_args* args, size_t size);

/* Runs the forward pass by `version`. On the device it is asynchronous on `stream`, on the device that
 * holds the tensors; the caller's current device is left as it was. On the host it is synchronous and
 * `stream` must be null. With B or M of 0 there is nothing to do, and neither
 * a side, a stream nor a row's limits to mind; the pair of version and dtype must exist all the same.
 * FA_INVALID_ARGUMENT, FA_UNSUPPORTED, FA_OUT_OF_MEMORY, FA_CUDA_ERROR as above. */
FA_API fa_status fa_forward(const fa_forward_args* args, fa_version version, struct CUstream_st* stream);

/* Writes to *bytes the workspace that fa_forward would need with the same arguments. */
FA_API fa_status fa_forward_workspace_size(const fa_forward_args* args, fa_version version, size_t* bytes);

/* Loads the modules, sets the attributes and makes the memory pool that fa_forward would with the same
 * arguments, so that a later call, captured or served, does none of it. Launches nothing. */
FA_API fa_status fa_forward_prepare(const fa_forward_args* args, fa_version version);

/* Says what fa_forward would run and why not the others, without running it. `plan` may be null. Up to
 * text_size bytes of the text go to `text` (null where text_size is 0), always ended by a zero;
 * *text_length (may be null) gets the length of the whole text without that zero. FA_OK also where no
 * kernel takes the problem: plan->runs is 0 and the text has the reasons. */
FA_API fa_status fa_forward_explain(const fa_forward_args* args, fa_version version, fa_forward_plan* plan,
                                    char* text, size_t text_size, size_t* text_length);

/* ---- backward ------------------------------------------------------------------------------------ */

/* Sets *args to the defaults: no tensors (their stride[3] is 1), a full mask, the scale 1/sqrt(D), not
 * deterministic. `size` as in fa_forward_args_init. */
FA_API fa_status fa_backward_args_init(fa_backward_args* args, size_t size);

/* Runs the backward pass by `version`; placement, stream and errors as in fa_forward. Where no gradient has
 * an element there is nothing to do. */
FA_API fa_status fa_backward(const fa_backward_args* args, fa_version version, struct CUstream_st* stream);

/* Writes to *bytes the workspace that fa_backward would need with the same arguments: linear in M and N. */
FA_API fa_status fa_backward_workspace_size(const fa_backward_args* args, fa_version version, size_t* bytes);

/* fa_forward_prepare's work for fa_backward. */
FA_API fa_status fa_backward_prepare(const fa_backward_args* args, fa_version version);

/* Says what fa_backward would run and why not the others; the arguments are fa_forward_explain's. */
FA_API fa_status fa_backward_explain(const fa_backward_args* args, fa_version version, fa_backward_plan* plan,
                                     char* text, size_t text_size, size_t* text_length);

/* ---- what there is ------------------------------------------------------------------------------- */

/* The number of rows of the kernel table. */
FA_API int32_t fa_kernel_count(void);

/* Row `index` of the kernel table. info->size is set by the caller. FA_INVALID_ARGUMENT: no such row. */
FA_API fa_status fa_kernel_info_get(int32_t index, fa_kernel_info* info);

/* How the library was built. info->size is set by the caller. */
FA_API fa_status fa_build_info_get(fa_build_info* info);

/* FLASHATTN_VERSION of the library that was loaded, and its text "0.1.0". */
FA_API int32_t fa_version_number(void);
FA_API const char* fa_version_string(void);

/* ---- errors -------------------------------------------------------------------------------------- */

/* The text of this thread's last call that did not return FA_OK; "" before the first. Valid until the
 * thread's next call into the library. */
FA_API const char* fa_last_error(void);

/* "FA_OK", "FA_INVALID_ARGUMENT", ...; "unknown fa_status" for any other number. */
FA_API const char* fa_status_name(fa_status status);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FLASHATTN_FLASHATTN_H */
