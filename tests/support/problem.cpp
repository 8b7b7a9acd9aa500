#include "tests/support/problem.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace fa::test {
namespace {

struct Word {
  std::string_view name;
  Dtype dtype;
};
constexpr Word kDtypes[] = {
    {"fp32", Dtype::float32},
    {"fp16", Dtype::float16},
    {"bf16", Dtype::bfloat16},
};

constexpr std::pair<std::string_view, Layout> kLayouts[] = {
    {"bhsd", Layout::bhsd},     {"bshd", Layout::bshd},           {"packed", Layout::packed},
    {"padded", Layout::padded}, {"unaligned", Layout::unaligned}, {"broadcast", Layout::broadcast},
};

constexpr std::pair<std::string_view, Data> kData[] = {
    {"normal", Data::normal},
    {"large", Data::large},
    {"zero-q", Data::zero_q},
};

constexpr std::pair<std::string_view, Passes> kPasses[] = {
    {"forward", Passes::forward},
    {"backward", Passes::backward},
    {"forward+backward", Passes::both},
};

std::string_view word_of(Dtype dtype) {
  for (const Word& word : kDtypes) {
    if (word.dtype == dtype) return word.name;
  }
  throw std::invalid_argument("a problem's dtype is none");
}

template <class Table, class Value>
std::string_view word_of(const Table& table, Value value) {
  for (const auto& [name, entry] : table) {
    if (entry == value) return name;
  }
  throw std::invalid_argument("a problem holds an unknown enumerator");
}

[[noreturn]] void fail(std::string_view word, std::string_view why) {
  throw std::invalid_argument("problem: '" + std::string(word) + "': " + std::string(why));
}

/// The whole of `text` as a number. `word` is what the message names.
template <class Number>
Number number(std::string_view text, std::string_view word) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) fail(word, "the number is out of range");
  if (error != std::errc() || stop != end) fail(word, "not a number");
  return value;
}

std::int64_t at_least(std::string_view text, std::string_view word, std::int64_t least) {
  const auto value = number<std::int64_t>(text, word);
  if (value < least) fail(word, "the least is " + std::to_string(least));
  return value;
}

std::int64_t size(std::string_view text, std::string_view word, std::int64_t least) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // the library's own for M and N
  const std::int64_t value = at_least(text, word, least);
  if (value > kMost) fail(word, "the most is " + std::to_string(kMost));
  return value;
}

/// "a" or "a/b"; without b, both are a.
std::pair<std::int64_t, std::int64_t> size_pair(std::string_view text, std::string_view word) {
  const std::size_t slash = text.find('/');
  const std::int64_t first = size(text.substr(0, slash), word, 1);
  return {first, slash == std::string_view::npos ? first : size(text.substr(slash + 1), word, 1)};
}

Mask window(std::string_view text, std::string_view word, Alignment alignment) {
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) fail(word, "a window has two bounds, L,R");
  return Mask::window(at_least(text.substr(0, comma), word, -1), at_least(text.substr(comma + 1), word, -1),
                      alignment);
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

std::vector<std::string_view> split(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  std::vector<std::string_view> words;
  for (std::size_t at = text.find_first_not_of(kBlank); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlank, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(kBlank, end);
  }
  return words;
}

/// Reads the words of one line into a Problem.
class Parser {
 public:
  void read(std::string_view word) {
    if (read_dtype(word) || read_named(word) || read_mask(word) || read_size(word)) return;
    fail(word, "unknown word");
  }

  void read_seed(std::string_view text, std::string_view word) {
    once("a seed", word);
    problem_.seed = number<std::uint64_t>(text, word);
  }

  Problem finish() const {
    const Problem& p = problem_;
    if (p.H % p.Hk != 0) fail(heads_, "key heads must divide query heads");
    if (p.layout == Layout::packed && (p.M != p.N || p.D != p.Dv)) {
      fail("packed", "q, k and v share a buffer: M must be N, and D must be Dv");
    }
    // Twice the elements of a padded tensor still index in 64 bits.
    const double rows = static_cast<double>(p.B) * static_cast<double>(p.H) *
                        static_cast<double>(std::max<std::int64_t>({p.M, p.N, 1}));
    if (rows * static_cast<double>(std::max(p.D, p.Dv)) > 0x1p58) {
      fail(to_string(p), "a tensor has more than 2^58 elements");
    }
    return p;
  }

 private:
  void once(std::string_view what, std::string_view word) {
    if (!seen_.insert(what).second) fail(word, std::string(what) + " is given twice");
  }

  bool read_dtype(std::string_view word) {
    for (const Word& entry : kDtypes) {
      if (word == entry.name) {
        once("the element type", word);
        problem_.dtype = entry.dtype;
        return true;
      }
      if (starts_with(word, "out-") && word.substr(4) == entry.name) {
        once("the element type of out", word);
        problem_.dtype_out = entry.dtype;
        return true;
      }
      if (starts_with(word, "grad-") && word.substr(5) == entry.name) {
        once("the element type of the gradients", word);
        problem_.dtype_gradient = entry.dtype;
        return true;
      }
    }
    return false;
  }

  bool read_named(std::string_view word) {
    for (const auto& [name, layout] : kLayouts) {
      if (word != name) continue;
      once("the layout", word);
      problem_.layout = layout;
      return true;
    }
    for (const auto& [name, data] : kData) {
      if (word != name) continue;
      once("the data", word);
      problem_.data = data;
      return true;
    }
    for (const auto& [name, passes] : kPasses) {
      if (word != name) continue;
      once("the pass", word);
      problem_.passes = passes;
      return true;
    }
    if (word == "no-lse") {
      once("no-lse", word);
      problem_.lse = false;
      return true;
    }
    if (word == "deterministic") {
      once("deterministic", word);
      problem_.deterministic = true;
      return true;
    }
    if (word == "dout-broadcast") {
      once("dout-broadcast", word);
      problem_.dout_broadcast = true;
      return true;
    }
    if (starts_with(word, "scale:")) {
      once("the scale", word);
      problem_.scale = number<float>(word.substr(6), word);
      if (!std::isfinite(*problem_.scale)) fail(word, "the scale must be finite");
      return true;
    }
    if (starts_with(word, "threads:")) {
      once("the number of threads", word);
      problem_.threads = number<int>(word.substr(8), word);
      if (problem_.threads < 0) fail(word, "the least is 0");
      return true;
    }
    if (starts_with(word, "seed:")) {
      read_seed(word.substr(5), word);
      return true;
    }
    return false;
  }

  bool read_mask(std::string_view word) {
    constexpr std::string_view kWindow = "window:", kWindowTopLeft = "window-top-left:";
    Mask mask;
    if (word == "full") {
      mask = Mask::full();
    } else if (word == "causal") {
      mask = Mask::causal();
    } else if (word == "causal-top-left") {
      mask = Mask::causal_top_left();
    } else if (starts_with(word, kWindow)) {
      mask = window(word.substr(kWindow.size()), word, Alignment::bottom_right);
    } else if (starts_with(word, kWindowTopLeft)) {
      mask = window(word.substr(kWindowTopLeft.size()), word, Alignment::top_left);
    } else {
      return false;
    }
    once("the mask", word);
    problem_.mask = mask;
    return true;
  }

  bool read_size(std::string_view word) {
    const std::string_view digits = word.substr(1);
    switch (word.front()) {
      case 'B':
        once("B", word);
        problem_.B = size(digits, word, 0);
        return true;
      case 'H':
        once("H", word);
        heads_ = word;
        std::tie(problem_.H, problem_.Hk) = size_pair(digits, word);
        return true;
      case 'D':
        once("D", word);
        std::tie(problem_.D, problem_.Dv) = size_pair(digits, word);
        return true;
      case 'M':
        once("M", word);
        problem_.M = size(digits, word, 0);
        return true;
      case 'N':
        once("N", word);
        problem_.N = size(digits, word, 0);
        return true;
      case 'S':
        once("M", word);
        once("N", word);
        problem_.M = problem_.N = size(digits, word, 0);
        return true;
      default:
        return false;
    }
  }

  Problem problem_;
  std::string_view heads_;
  std::set<std::string_view> seen_;
};

std::string mask_word(const Mask& mask) {
  const bool top_left = mask.alignment == Alignment::top_left;
  if (mask.left == -1 && mask.right == 0) return top_left ? "causal-top-left" : "causal";
  if (mask.left == -1 && mask.right == -1 && !top_left) return "full";
  return (top_left ? "window-top-left:" : "window:") + std::to_string(mask.left) + "," +
         std::to_string(mask.right);
}

std::string shortest(float x) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, x);
  return error == std::errc() ? std::string(text, end) : throw std::logic_error("to_chars");
}

/// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): the standard
/// library's distributions differ between platforms, and a seed must mean the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::int64_t below(std::int64_t count) {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return static_cast<std::int64_t>(z % static_cast<std::uint64_t>(count));
  }
  std::int64_t between(std::int64_t least, std::int64_t most) { return least + below(most - least + 1); }
  bool chance(std::int64_t percent) { return below(100) < percent; }

  template <class Value>
  Value pick(std::initializer_list<Value> values) {
    return values.begin()[below(static_cast<std::int64_t>(values.size()))];
  }

 private:
  std::uint64_t state_;
};

std::int64_t random_length(Random& random) {
  if (random.chance(60)) {
    return random.pick<std::int64_t>(
        {1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 193, 250, 256, 257});
  }
  return random.between(1, 300);
}

std::int64_t random_head_dim(Random& random) {
  if (random.chance(60)) return random.pick<std::int64_t>({16, 32, 64, 80, 96, 128});
  if (random.chance(50))
    return random.pick<std::int64_t>({1, 2, 7, 17, 31, 33, 46, 63, 65, 72, 104, 127, 129});
  return random.between(1, 130);
}

Mask random_mask(Random& random, std::int64_t longest) {
  const auto alignment = random.chance(65) ? Alignment::bottom_right : Alignment::top_left;
  // Bounds that cut, bounds past every key, and bounds whose sum with a position overflows.
  const auto bound = [&]() -> std::int64_t {
    if (random.chance(20)) return -1;
    if (random.chance(8)) {
      return random.pick<std::int64_t>({0x7fffffff, std::numeric_limits<std::int64_t>::max()});
    }
    if (random.chance(25)) return random.between(0, 3);
    return random.between(0, longest + 2);
  };
  switch (random.below(10)) {
    case 0:
    case 1:
    case 2:
      return Mask::full();
    case 3:
    case 4:
    case 5:
      return Mask::causal();
    case 6:
      return Mask::causal_top_left();
    default: {
      const std::int64_t left = bound();
      return Mask::window(left, bound(), alignment);
    }
  }
}

/// Fewer batches, heads, then rows, until the forward pass has no more than so many operations.
void shrink(Problem& p, double most_flops) {
  while (p.flops() > most_flops) {
    if (p.B > 1) {
      --p.B;
    } else if (p.Hk > 1) {
      p.H -= p.H / p.Hk;
      --p.Hk;
    } else if (p.H > 3) {
      p.H = 3;
    } else {
      p.H = 1;
      if (p.flops() > most_flops) {  // the shape itself: shorten queries, and keys where they must be equal
        p.M = p.M / 2 + 1;
        if (p.layout == Layout::packed) p.N = p.M;
      }
    }
  }
}

}  // namespace

KeyRange visible_keys(const Problem& problem, std::int64_t row) {
  const std::int64_t M = problem.M, N = problem.N, left = problem.mask.left, right = problem.mask.right;
  const std::int64_t p = problem.mask.alignment == Alignment::top_left ? row : row + N - M;
  // The bounds may be as large as 2^63 - 1: each is compared before it is added.
  const std::int64_t first = left == -1 || left >= p ? 0 : std::min(p - left, N);
  const std::int64_t last = right == -1 || right >= N - 1 - p ? N : std::max<std::int64_t>(p + right + 1, 0);
  return first < last ? KeyRange{first, last} : KeyRange{0, 0};
}

float scale_of(const Problem& problem) {
  return problem.scale.value_or(static_cast<float>(1 / std::sqrt(static_cast<double>(problem.D))));
}

std::vector<Stretch> even_stretches(const Problem& p) {
  // The rows where one of the window's bounds meets an end of the keys.
  const std::int64_t most = p.M + p.N;  // bounds beyond bound nothing
  const std::int64_t left = p.mask.left == -1 ? most : std::min(p.mask.left, most);
  const std::int64_t right = p.mask.right == -1 ? most : std::min(p.mask.right, most);
  const std::int64_t shift = p.mask.alignment == Alignment::top_left ? 0 : p.N - p.M;
  std::set<std::int64_t> cuts = {0, p.M};
  for (const std::int64_t key : {std::int64_t{0}, p.N}) {
    for (const std::int64_t bound : {-left, right + 1}) {
      const std::int64_t row = key - bound - shift;
      cuts.insert(std::clamp<std::int64_t>(row, 0, p.M));
      cuts.insert(std::clamp<std::int64_t>(row + 1, 0, p.M));
    }
  }
  std::vector<Stretch> stretches;
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
    stretches.push_back({*cut, *std::next(cut) - 1});
  }
  return stretches;
}

double Problem::visible_pairs() const {
  const auto keys_of = [&](std::int64_t row) {
    const KeyRange keys = visible_keys(*this, row);
    return static_cast<double>(keys.last - keys.first);
  };
  double pairs = 0;
  for (const auto& [first, last] : even_stretches(*this)) {
    pairs += static_cast<double>(last + 1 - first) * (keys_of(first) + keys_of(last)) / 2;
  }
  return pairs;
}

double Problem::flops() const {
  // Products over D and over Dv: S and O forward; S, dQ, dK and dP, dV backward.
  const std::int64_t forward = D + Dv, backward = 3 * D + 2 * Dv;
  const std::int64_t terms = passes == Passes::forward    ? forward
                             : passes == Passes::backward ? backward
                                                          : forward + backward;
  return 2 * static_cast<double>(B) * static_cast<double>(H) * static_cast<double>(terms) * visible_pairs();
}

double Problem::bytes() const {
  const double b = static_cast<double>(B), h = static_cast<double>(H), m = static_cast<double>(M);
  const double kv_heads = layout == Layout::broadcast ? 1.0 : b * static_cast<double>(Hk);
  const double q = b * h * m * static_cast<double>(D);
  const double kv = kv_heads * static_cast<double>(N) * static_cast<double>(D + Dv);
  const double out = b * h * m * static_cast<double>(Dv);
  return (q + kv) * static_cast<double>(size_of(dtype)) + out * static_cast<double>(size_of(out_dtype())) +
         (lse ? b * h * m * 4 : 0);
}

Problem parse_problem(std::string_view text) {
  const std::vector<std::string_view> words = split(text);
  if (words.empty()) throw std::invalid_argument("problem: the line is empty");
  Parser parser;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != "seed") {
      parser.read(words[i]);
    } else if (++i < words.size()) {
      parser.read_seed(words[i], words[i]);
    } else {
      fail("seed", "a number must follow");
    }
  }
  return parser.finish();
}

std::string to_string(const Problem& problem) {
  const Problem& p = problem;
  std::string line(word_of(p.dtype));
  const auto add = [&line](std::string_view word, std::string_view value = "") {
    line.append(" ").append(word).append(value);
  };
  const auto add_sizes = [&](std::string_view name, std::int64_t first, std::int64_t second) {
    add(name, std::to_string(first));
    if (second != first) line.append("/").append(std::to_string(second));
  };
  if (p.out_dtype() != p.dtype) add("out-", word_of(p.dtype_out));
  if (p.gradient_dtype() != p.dtype) add("grad-", word_of(p.dtype_gradient));
  add("B", std::to_string(p.B));
  add_sizes("H", p.H, p.Hk);
  add("M", std::to_string(p.M));
  add("N", std::to_string(p.N));
  add_sizes("D", p.D, p.Dv);
  if (const std::string mask = mask_word(p.mask); mask != "full") add(mask);
  if (p.scale) add("scale:", shortest(*p.scale));
  if (p.layout != Layout::bhsd) add(word_of(kLayouts, p.layout));
  if (p.data != Data::normal) add(word_of(kData, p.data));
  if (!p.lse) add("no-lse");
  if (p.passes != Passes::forward) add(word_of(kPasses, p.passes));
  if (p.dout_broadcast) add("dout-broadcast");
  if (p.deterministic) add("deterministic");
  if (p.threads != 0) add("threads:", std::to_string(p.threads));
  if (p.seed != 1) add("seed ", std::to_string(p.seed));
  return line;
}

bool operator==(const Problem& a, const Problem& b) {
  const auto key = [](const Problem& p) {
    return std::tuple(p.dtype, p.out_dtype(), p.B, p.H, p.Hk, p.M, p.N, p.D, p.Dv, p.mask.left, p.mask.right,
                      p.mask.alignment, p.scale, p.layout, p.data, p.lse, p.threads, p.seed,
                      p.gradient_dtype(), p.deterministic, p.dout_broadcast, p.passes);
  };
  return key(a) == key(b);
}

std::vector<NamedProblem> read_problem_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be opened");
  std::vector<NamedProblem> problems;
  std::string line;
  for (int count = 1; std::getline(file, line); ++count) {
    std::string_view text = std::string_view(line).substr(0, line.find('#'));
    const std::vector<std::string_view> words = split(text);
    if (words.empty()) continue;
    NamedProblem entry;
    if (words.front().back() == ':') {
      entry.name = words.front().substr(0, words.front().size() - 1);
      text.remove_prefix(static_cast<std::size_t>(words.front().data() - text.data()) + words.front().size());
    }
    try {
      entry.problem = parse_problem(text);
    } catch (const std::invalid_argument& error) {
      throw std::runtime_error(path + ":" + std::to_string(count) + ": " + error.what());
    }
    problems.push_back(std::move(entry));
  }
  if (file.bad()) throw std::runtime_error(path + ": cannot be read");
  return problems;
}

Problem random_problem(std::uint64_t seed) {
  Random random(seed);
  Problem p;
  p.seed = seed;
  p.dtype = random.pick({Dtype::float32, Dtype::float16, Dtype::bfloat16});
  if (random.chance(15)) p.dtype_out = random.pick({Dtype::float32, Dtype::float16, Dtype::bfloat16});
  p.B = random.between(1, 3);
  p.Hk = random.between(1, 3);
  p.H = p.Hk * random.pick<std::int64_t>({1, 1, 1, 2, 3, 8});
  p.M = random_length(random);
  p.N = random.chance(25) ? p.M : random_length(random);
  p.D = random_head_dim(random);
  p.Dv = random.chance(12) ? random_head_dim(random) : p.D;
  if (random.chance(2)) p.B = 0;
  if (random.chance(2)) p.M = 0;
  if (random.chance(2)) p.N = 0;
  p.mask = random_mask(random, std::max(p.M, p.N));
  if (random.chance(25)) {
    p.scale = random.pick({0.0f, -0.125f, 0.5f, static_cast<float>(random.between(1, 400)) / 1000.0f});
  }
  p.layout = random.pick(
      {Layout::bhsd, Layout::bshd, Layout::packed, Layout::padded, Layout::unaligned, Layout::broadcast});
  if (p.layout == Layout::packed) {
    p.N = p.M;
    p.Dv = p.D;
  }
  if (random.chance(10)) p.data = Data::large;
  if (random.chance(5)) p.data = Data::zero_q;
  p.lse = random.chance(90);
  if (random.chance(20)) p.threads = static_cast<int>(random.between(1, 3));

  shrink(p, 2 * 15e6);  // hundreds of them run in seconds, oracle included
  return p;
}

Problem random_backward_problem(std::uint64_t seed) {
  Problem p = random_problem(seed);
  Random random(~seed);
  p.dtype_out = Dtype::none;
  p.lse = true;
  if (random.chance(20)) p.dtype_gradient = random.pick({Dtype::float32, p.dtype});
  p.deterministic = random.chance(40);
  p.dout_broadcast = random.chance(10);
  shrink(p, 2 * 6e6);
  return p;
}

}  // namespace fa::test
