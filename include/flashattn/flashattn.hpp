/// libflashattn: exact attention for C++ programs. Everything, in one include.
///
///     fa::ForwardArgs<float> args;
///     args.q   = fa::bhsd(q, B, H, M, D);
///     args.k   = fa::bhsd(k, B, Hk, N, D);
///     args.v   = fa::bhsd(v, B, Hk, N, D);
///     args.out = fa::bhsd(out, B, H, M, D);
///     args.mask = fa::Mask::causal();
///     fa::forward(args, stream);
///
/// fa::backward has the gradients.
#pragma once

#if defined(_MSVC_LANG)
#if _MSVC_LANG < 201703L
#error "flashattn.hpp needs C++17"
#endif
#elif __cplusplus < 201703L
#error "flashattn.hpp needs C++17"
#endif

#include <flashattn/flashattn.h>
#include <flashattn/backward.hpp>
#include <flashattn/error.hpp>
#include <flashattn/forward.hpp>
#include <flashattn/mask.hpp>
#include <flashattn/tensor.hpp>
#include <flashattn/types.hpp>
#include <flashattn/version.hpp>
