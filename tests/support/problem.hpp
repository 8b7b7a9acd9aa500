/// One attention problem as one line of text, used by tests, bench and tools alike:
///
///     fp16 B4 H12/4 M2048 N2048 D64 causal bshd seed 7
///
/// so that any failure is one line to paste into `bench_attention --problem '...'` or a test's problem list.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <flashattn/flashattn.hpp>

namespace fa::test {

/// How q, k, v and out lie in memory.
enum class Layout {
  bhsd,       // contiguous [B, H, S, D]
  bshd,       // contiguous [B, S, H, D]
  packed,     // q, k, v are slices of one [B, S, H + 2 Hk, D] buffer (M = N, D = Dv); out is bshd
  padded,     // [B, H, S, D] with gaps after every row, head and batch; rows keep 16-byte alignment
  unaligned,  // the same, with gaps of one element: rows have the alignment of one element
  broadcast,  // k and v have stride 0 over the batch, and over the heads
};

/// What the random data looks like.
enum class Data {
  normal,  // unit normal
  large,   // q and k times 30: logits in the hundreds
  zero_q,  // Q = 0: O is the mean of the visible V rows, LSE = ln(count)
};

/// What bench measures of a problem. Tests know by themselves which pass they run.
enum class Passes { forward, backward, both };

struct Problem {
  Dtype dtype = Dtype::float32;
  Dtype dtype_out = Dtype::none;  // none: dtype
  std::int64_t B = 1, H = 1, Hk = 1, M = 1, N = 1, D = 64, Dv = 64;
  Mask mask;
  std::optional<float> scale;
  Layout layout = Layout::bhsd;
  Data data = Data::normal;
  bool lse = true;
  int threads = 0;
  std::uint64_t seed = 1;
  Passes passes = Passes::forward;
  // Of the backward pass alone.
  Dtype dtype_gradient = Dtype::none;  // none: dtype
  bool deterministic = false;
  bool dout_broadcast = false;  // dO is one row, with stride 0 over batches, heads and queries

  Dtype out_dtype() const { return dtype_out == Dtype::none ? dtype : dtype_out; }
  Dtype gradient_dtype() const { return dtype_gradient == Dtype::none ? dtype : dtype_gradient; }
  /// Multiply-adds counted as 2, visible (query, key) pairs only: 4 B H D pairs where Dv = D; of backward 2.5
  /// times as many.
  double flops() const;
  /// Visible (query, key) pairs of one head.
  double visible_pairs() const;
  /// Bytes of q, k, v read once and out, lse written once.
  double bytes() const;
};

/// The keys [first, last) that a row sees: the mask rule of docs/conventions.md, from problem.mask. first =
/// last = 0 where it sees none. The oracle's own rule; it shares nothing with the library's.
struct KeyRange {
  std::int64_t first, last;
};
KeyRange visible_keys(const Problem& problem, std::int64_t row);

/// Rows [first, last].
struct Stretch {
  std::int64_t first, last;
};
/// All rows, in stretches in which the first and the last visible key, and their number, change by the same
/// from row to row.
std::vector<Stretch> even_stretches(const Problem& problem);

/// The scale, by default 1 / sqrt(D) rounded once to fp32, as the library takes it.
float scale_of(const Problem& problem);

/// Words, in any order, separated by blanks, each kind at most once:
///   fp32 | fp16 | bf16        element type          out-fp32 | out-fp16 | out-bf16   that of out, if another
///   B4  H12  H12/4  M128  N256  S128 (M and N)  D64  D192/128 (D and Dv)
///   full | causal | causal-top-left | window:L,R | window-top-left:L,R    (-1 is unbounded)
///   scale:0.5   bhsd | bshd | packed | padded | unaligned | broadcast   normal | large | zero-q
///   no-lse   threads:2   seed 7 (or seed:7)
///   forward | backward | forward+backward
///   grad-fp32 | grad-fp16 | grad-bf16   that of the gradients, if another    deterministic    dout-broadcast
/// Only problems that the library's rules allow: Hk divides H, sizes are not negative, H and D are at least
/// 1; packed needs M = N and D = Dv. Throws std::invalid_argument naming the word.
Problem parse_problem(std::string_view text);

/// The canonical line: parse_problem(to_string(p)) == p. Defaults are left out.
std::string to_string(const Problem& problem);

bool operator==(const Problem& a, const Problem& b);

/// A file of problems: one a line, `#` starts a comment, blank lines are skipped. A line may start with
/// a word `name:`. Throws std::runtime_error naming file and line.
struct NamedProblem {
  std::string name;  // empty where the line has none
  Problem problem;
};
std::vector<NamedProblem> read_problem_file(const std::string& path);

/// A random small problem that every rule allows; the same for the same seed. Sizes up to a few hundred.
Problem random_problem(std::uint64_t seed);

/// The same for the backward pass: its words in place of those that only the forward pass knows.
Problem random_backward_problem(std::uint64_t seed);

}  // namespace fa::test
