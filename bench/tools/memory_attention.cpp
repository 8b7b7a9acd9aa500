// memory_attention: how much device memory attention takes as the sequence grows, of explicit attention and
// of the library, measured by running each.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <flashattn/flashattn.hpp>

#include "bench/baselines/explicit_attention.hpp"
#include "bench/device/backward_problem.hpp"
#include "bench/device/baselines.hpp"
#include "bench/json_text.hpp"
#include "bench/one_line.hpp"
#include "bench/program.hpp"
#include "bench/run_facts.hpp"
#include "bench/tools/device_facts.hpp"
#include "tests/support/memory.hpp"

namespace fa::bench {

namespace {

using test::Passes;
using test::Problem;

constexpr const char* kHelp =
    R"(memory_attention: device memory of explicit attention and of the library, over the sequence length.

  memory_attention                              B1 H16 D64 fp16, S 4096, 16384, 65536
  memory_attention --lengths 1024,2048 --problem 'fp32 B4 H12 D64 causal'

  --lengths S,S,...  of queries and of keys
  --problem LINE     everything else, in the grammar of bench/README.md. Its lengths and passes are not read
  --markdown FILE    the printed table once more
  --json FILE        the same figures, with the facts of the run

Each row is run: forward, and forward then backward. "tensors" are q, k, v, out and lse, with backward dout, dq,
dk and dv too: the same for both. "beside them" is what the row allocates besides: P, dS and cuBLAS's own 32 MiB
of explicit attention, the workspace that the library asks for of fa::Auto. Both are counted. "used" is measured:
what cudaMemGetInfo reports as free before the row less what it reports after the last call, with everything
still allocated. So whatever the driver or a library took besides is in it, and so is what another program
took meanwhile. What the first use of a kernel loads for good is not: a row is run twice, and the second counts.

Exit code: 0; 1 where a row fails or its result is wrong; 2 for a bad command line.
)";

constexpr const char* kLibrary = "flashattn";

struct Options {
  std::vector<std::int64_t> lengths = {4096, 16384, 65536};
  std::string problem = "fp16 B1 H16 D64";
  std::string markdown, json;
  bool help = false;
};

std::vector<std::int64_t> parse_lengths(const std::string& text) {
  std::vector<std::int64_t> lengths;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || value < 1)
      throw UsageError("--lengths: '" + word + "' is not a positive number");
    lengths.push_back(value);
  }
  if (lengths.empty()) throw UsageError("--lengths names none");
  return lengths;
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help" || flag == "-h") {
      options.help = true;
      continue;
    }
    const bool known = flag == "--lengths" || flag == "--problem" || flag == "--markdown" || flag == "--json";
    if (!known) throw UsageError("unknown word '" + flag + "'");
    if (++i >= argc) throw UsageError(flag + " needs a value");
    if (flag == "--lengths") options.lengths = parse_lengths(argv[i]);
    if (flag == "--problem") options.problem = argv[i];
    if (flag == "--markdown") options.markdown = argv[i];
    if (flag == "--json") options.json = argv[i];
  }
  return options;
}

struct Row {
  Problem problem;
  std::string name;  // kCublasSoftmax, kLibrary
  std::string kernel;
  std::size_t tensors = 0, beside = 0;  // bytes, counted
  std::optional<std::size_t> used;      // bytes, measured; none where it did not run
  std::string skipped, failed;          // why
};

/// Of q, k, v, out and lse, and with backward of dout, dq, dk and dv.
std::size_t tensor_bytes(const Problem& p) {
  const std::int64_t queries = p.B * p.H * p.M * (p.D + p.Dv), keys = p.B * p.Hk * p.N * (p.D + p.Dv);
  const std::int64_t in = queries + keys, gradients = p.passes == Passes::forward ? 0 : queries + keys;
  return static_cast<std::size_t>(in + gradients) * size_of(p.dtype) +
         static_cast<std::size_t>(p.B * p.H * p.M) * sizeof(float);
}

/// The tensors of a problem in device memory.
class Tensors {
 public:
  Tensors(const Problem& problem, const DeviceStream& stream) : problem_(problem), stream_(stream) {
    if (problem.passes == Passes::forward) {
      forward_ = std::make_unique<DeviceProblem>(problem, 0, stream);
    } else {
      backward_ = std::make_unique<BackwardProblem>(problem, stream);
    }
  }

  const DeviceProblem& forward() const { return backward_ ? backward_->forward() : *forward_; }
  /// Null without backward.
  const fa_backward_args* backward() const { return backward_ ? &backward_->args() : nullptr; }

  /// Empty, or what is wrong with a sample of the results.
  std::string check(Rule rule) const {
    const auto read = [&](std::int64_t b, std::int64_t h, std::int64_t i) {
      return forward().row(b, h, i, stream_);
    };
    const std::string wrong = check_rows(problem_, forward().input_reader(stream_), read, rule);
    return wrong.empty() && backward_ ? check_gradients(problem_, backward_->reader()) : wrong;
  }

 private:
  const Problem& problem_;
  const DeviceStream& stream_;
  std::unique_ptr<DeviceProblem> forward_;
  std::unique_ptr<BackwardProblem> backward_;
};

/// Runs the row, everything that it needs allocated, and notes what is gone of the memory free before.
void run_explicit(Row& row, const DeviceStream& stream) {
  const std::size_t before = free_device_bytes();
  const Tensors tensors(row.problem, stream);
  ExplicitAttention attention(row.problem, stream);
  attention.forward(tensors.forward().args());
  if (tensors.backward() != nullptr) attention.backward(*tensors.backward());
  stream.wait();
  row.used = before - std::min(before, free_device_bytes());
  row.failed = tensors.check(row.problem.dtype == Dtype::float32 ? Rule::house : Rule::sixteen_bit_baseline);
}

void run_library(Row& row, const DeviceStream& stream) {
  const std::size_t before = free_device_bytes();
  const Tensors tensors(row.problem, stream);
  fa_forward_args forward = tensors.forward().args();
  fa_forward_plan plan = {};
  plan.size = sizeof plan;
  detail::check(fa_forward_explain(&forward, FA_AUTO, &plan, nullptr, 0, nullptr));
  if (plan.runs == 0) throw Unsupported("no kernel takes the forward pass");
  row.kernel = plan.kernel;
  detail::check(fa_forward_workspace_size(&forward, FA_AUTO, &row.beside));
  std::optional<fa_backward_args> backward;
  if (tensors.backward() != nullptr) {
    backward = *tensors.backward();
    detail::check(fa_backward_explain(&*backward, FA_AUTO, &plan, nullptr, 0, nullptr));
    if (plan.runs == 0) throw Unsupported("no kernel takes the backward pass");
    row.kernel += std::string(", ") + plan.kernel;
    detail::check(fa_backward_workspace_size(&*backward, FA_AUTO, &backward->workspace_size));
    row.beside = std::max(row.beside, backward->workspace_size);
  }
  const DeviceMemory workspace(row.beside);  // one for both passes: backward runs after forward
  forward.workspace = workspace.data();
  forward.workspace_size = row.beside;
  detail::check(fa_forward(&forward, FA_AUTO, stream));
  if (backward) {
    backward->workspace = workspace.data();
    backward->workspace_size = row.beside;
    detail::check(fa_backward(&*backward, FA_AUTO, stream));
  }
  stream.wait();
  row.used = before - std::min(before, free_device_bytes());
  row.failed = tensors.check(Rule::house);
}

void measure(Row& row, const DeviceStream& stream) try {
  const bool is_library = row.name == kLibrary;
  row.tensors = tensor_bytes(row.problem);
  if (!is_library) {
    row.kernel = kCublasSoftmax;
    row.skipped = why_no_cublas_softmax(row.problem);
    if (!row.skipped.empty()) return;
    row.beside = ExplicitAttention::bytes(row.problem);
  }
  row.skipped = why_not_enough_memory(row.tensors + row.beside);
  // The first run loads kernels, and what libraries keep for each of them.
  for (int run = 0; run < 2 && row.skipped.empty() && row.failed.empty(); ++run) {
    is_library ? run_library(row, stream) : run_explicit(row, stream);
  }
} catch (const Unsupported& refusal) {
  row.skipped = refusal.what();
} catch (const std::bad_alloc&) {
  row.skipped = "out of memory: needs " + bytes_text(row.tensors + row.beside);
} catch (const std::exception& error) {
  row.failed = error.what();
}

const char* passes_text(const Row& row) {
  return row.problem.passes == Passes::forward ? "forward" : "forward+backward";
}

std::string mebibytes(std::size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) * 0x1p-20);
  return text;
}

std::string outcome(const Row& row) {
  if (!row.failed.empty()) return "FAILED: " + one_line(row.failed);
  if (!row.skipped.empty()) return one_line(row.skipped);
  return mebibytes(row.used.value_or(0));
}

void write_markdown(std::ostream& out, const Facts& facts, const std::string& problem,
                    const std::vector<Row>& rows) {
  for (const auto& [name, value] : facts) out << "- " << name << ": " << value << '\n';
  out << "\n" << problem << "\n\n| S | passes | row | tensors | beside them | used | what ran |\n";
  out << "|---:|---|---|---:|---:|---:|---|\n";
  for (const Row& row : rows) {
    out << "| " << row.problem.N << " | " << passes_text(row) << " | " << row.name << " | "
        << mebibytes(row.tensors) << " | " << mebibytes(row.beside) << " | " << outcome(row) << " | "
        << row.kernel << " |\n";
  }
}

void write_json(std::ostream& out, const Facts& facts, const std::string& problem,
                const std::vector<Row>& rows) {
  out << "{\n  \"facts\": " << json_object(facts) << ",\n  \"problem\": " << quoted(problem)
      << ",\n  \"rows\": [";
  const char* separator = "";
  for (const Row& row : rows) {
    const bool measured = row.skipped.empty() && row.failed.empty();
    out << separator << "\n    {\"row\": " << quoted(row.name) << ", \"S\": " << row.problem.N
        << ", \"passes\": \"" << passes_text(row) << "\", \"kernel\": " << quoted(row.kernel)
        << ", \"tensor_bytes\": " << row.tensors << ", \"beside_bytes\": " << row.beside << ", \"state\": \""
        << (measured             ? "measured"
            : row.failed.empty() ? "skipped"
                                 : "failed")
        << '"';
    if (measured) {
      out << ", \"used_bytes\": " << row.used.value_or(0);
    } else {
      out << ", \"reason\": " << quoted(outcome(row));
    }
    out << '}';
    separator = ",";
  }
  out << "\n  ]\n}\n";
}

std::ofstream opened(const std::string& path, const char* flag) {
  std::ofstream file;
  if (path.empty()) return file;
  file.open(path);
  if (!file) throw UsageError(std::string(flag) + ": cannot write '" + path + "'");
  return file;
}

int run(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  if (options.help) {
    std::cout << kHelp;
    return 0;
  }
  Problem problem = parse_problem_word("--problem", options.problem);
  if (problem.layout != test::Layout::bhsd)
    throw UsageError("--problem: takes contiguous [B, H, S, D] alone");
  problem.dtype_out = problem.dtype_gradient = Dtype::none;
  problem.lse = true;
  std::ofstream markdown = opened(options.markdown, "--markdown");
  std::ofstream json = opened(options.json, "--json");
  if (!test::have_device()) throw std::runtime_error("no CUDA device");

  Facts facts = run_facts(argc, argv);
  for (auto& fact : device_facts()) facts.push_back(std::move(fact));
  facts.emplace_back("cublas", cublas_version());
  const DeviceStream stream;
  std::vector<Row> rows;
  for (const std::int64_t length : options.lengths) {
    for (const Passes passes : {Passes::forward, Passes::both}) {
      for (const char* name : {kCublasSoftmax, kLibrary}) {
        Row& row = rows.emplace_back();
        row.problem = problem;
        row.problem.M = row.problem.N = length;
        row.problem.passes = passes;
        row.name = name;
        measure(row, stream);
        std::cerr << "S" << length << ' ' << passes_text(row) << ' ' << name << ": " << outcome(row) << '\n';
      }
    }
  }
  write_markdown(std::cout, facts, options.problem, rows);
  if (markdown.is_open()) write_markdown(markdown, facts, options.problem, rows);
  if (json.is_open()) write_json(json, facts, options.problem, rows);
  return std::any_of(rows.begin(), rows.end(), [](const Row& row) { return !row.failed.empty(); }) ? 1 : 0;
}

}  // namespace

}  // namespace fa::bench

int main(int argc, char** argv) {
  return fa::bench::run_program("memory_attention", fa::bench::run, argc, argv, 1);
}
