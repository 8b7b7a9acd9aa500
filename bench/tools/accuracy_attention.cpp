// accuracy_attention: how far every row of the kernel table is from the fp64 oracle on one problem, beside
// the yardstick of its element type and other programs that compute the same.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <flashattn/flashattn.hpp>

#include "bench/baselines/cudnn_sdpa.hpp"
#include "bench/json_text.hpp"
#include "bench/one_line.hpp"
#include "bench/program.hpp"
#include "bench/run_facts.hpp"
#include "bench/tools/device_facts.hpp"
#include "bench/tools/placed_call.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/run.hpp"
#if defined(FLASHATTN_TEST_CUBLAS)
#include "tests/support/device_reference.hpp"
#endif

namespace fa::bench {

namespace {

using test::ErrorStats;
using test::Inputs;
using test::Outputs;
using test::Problem;
using test::Reference;
using test::Side;

constexpr const char* kHelp =
    R"(accuracy_attention: errors of the library's kernels against the same computation in fp64.

  accuracy_attention                       every row of the kernel table, B4 H12 M=N=2048 D64
  accuracy_attention V0 V2 CPU --seed 7    these rungs, other data
  accuracy_attention --problem 'B1 H8 S512 D128 causal'

  --seed N        of the random inputs (default 1)
  --problem LINE  another problem, in the grammar of bench/README.md. Its element type is not read: every row
                  has its own
  --json FILE     the same figures, with the facts of the run

The inputs are rounded to fp16, so that fp32 and fp16 rows see the same values; bf16 rows see these rounded to
bf16. "rule" is the tests' own (tests/support/compare.hpp). Beside the library: the yardstick (the same
computation in fp32, P rounded to the row's type), explicit attention by cuBLAS, and cuDNN's.

Exit code: 0; 1 where a row of the library breaks the rule or fails; 2 for a bad command line.
)";

struct Options {
  std::vector<Version> rungs;  // empty: all
  std::string problem = "B4 H12 S2048 D64";
  std::uint64_t seed = 1;
  bool seed_given = false;
  std::string json;
  bool help = false;
};

const char* short_name(Dtype dtype) {
  return dtype == Dtype::float32 ? "fp32" : dtype == Dtype::float16 ? "fp16" : "bf16";
}

bool same_word(const std::string& a, const std::string& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

Version parse_rung(const std::string& word) {
  constexpr Version kAll[] = {V0, V1, V2, V3, V4, V5, V6, V7, V8, CPU};
  for (const Version version : kAll) {
    if (same_word(name_of(version), word)) return version;
  }
  throw UsageError("'" + word + "' is none of V0 ... V8, CPU");
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.rfind("--", 0) == 0 ? word.find('=') : std::string::npos;
    const std::string flag = word.substr(0, equals);
    const auto value = [&]() -> std::string {
      if (equals != std::string::npos) return word.substr(equals + 1);
      if (++i >= argc) throw UsageError(flag + " needs a value");
      return argv[i];
    };
    if (flag == "--seed") {
      const std::string text = value();
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), options.seed);
      if (error != std::errc() || end != text.data() + text.size()) {
        throw UsageError("--seed: '" + text + "' is not a number");
      }
      options.seed_given = true;
    } else if (flag == "--problem") {
      options.problem = value();
    } else if (flag == "--json") {
      options.json = value();
    } else if (flag == "--help" || flag == "-h") {
      options.help = true;
    } else if (flag.rfind("--", 0) == 0) {
      throw UsageError("unknown flag '" + word + "'");
    } else {
      options.rungs.push_back(parse_rung(word));
    }
  }
  return options;
}

/// One line of the result.
struct Line {
  std::string name;
  Dtype dtype;
  bool of_library = false;
  std::string kernel;   // what ran
  std::string skipped;  // why it did not run
  std::string failed;   // what it threw
  ErrorStats stats;
  double lse_max_abs = 0;
  std::string broken;  // what does not hold of the rule

  bool measured() const { return skipped.empty() && failed.empty(); }
  bool bad() const { return of_library && (!failed.empty() || !broken.empty()); }
};

double lse_error(const std::vector<float>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto g = static_cast<double>(got[i]);
    if (g == want[i] || (std::isnan(g) && std::isnan(want[i]))) continue;
    const double error = std::fabs(g - want[i]);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}

/// fa_forward, keeping the name of what runs: a stand-in may serve what the row named does not take.
std::string kernel_that_ran;
fa_status forward_by_name(const fa_forward_args* args, fa_version version, Stream stream) {
  fa_forward_plan plan = {};
  plan.size = sizeof plan;
  kernel_that_ran.clear();
  const fa_status status = fa_forward_explain(args, version, &plan, nullptr, 0, nullptr);
  if (status == FA_OK && plan.kernel != nullptr) kernel_that_ran = plan.kernel;
  return fa_forward(args, version, stream);
}

std::vector<fa_kernel_info> table_rows(const std::vector<Version>& rungs) {
  std::vector<fa_kernel_info> rows;
  for (std::int32_t i = 0; i < fa_kernel_count(); ++i) {
    fa_kernel_info info = {};
    info.size = sizeof info;
    detail::check(fa_kernel_info_get(i, &info));
    const bool asked = rungs.empty() || std::find(rungs.begin(), rungs.end(),
                                                  static_cast<Version>(info.version)) != rungs.end();
    if (info.pass == FA_PASS_FORWARD && asked) rows.push_back(info);
  }
  for (const Version rung : rungs) {
    if (std::none_of(rows.begin(), rows.end(), [rung](const fa_kernel_info& row) {
          return static_cast<Version>(row.version) == rung;
        })) {
      throw UsageError(std::string("the kernel table has no row of ") + name_of(rung));
    }
  }
  return rows;
}

/// The rows of one element type, in the order in which they are printed.
class Measurement {
 public:
  Measurement(const Problem& problem, const Reference& reference, const Inputs& inputs,
              std::vector<Line>& lines)
      : problem_(problem), reference_(reference), inputs_(inputs), lines_(lines) {}

  void library_row(const fa_kernel_info& row) {
    const auto version = static_cast<Version>(row.version);
    const Side side = version == CPU ? Side::host : Side::device;
    Line line;
    line.name = name_of(version);
    line.of_library = true;
    line.kernel = row.name;
    if (row.built == 0) {
      line.skipped = std::string("this build left out ") + row.name;
    } else if (side == Side::device && !test::have_device()) {
      line.skipped = "no CUDA device";
    }
    add(line, [&](Line& of) {
      const test::RunResult result = test::run_forward(problem_, inputs_, version, side, forward_by_name);
      of.kernel = kernel_that_ran;
      if (!result.guard_damage.empty()) throw std::runtime_error(result.guard_damage);
      return result.got;
    });
  }

  void yardstick() {
    Line line;
    line.name = "yardstick";
    line.kernel = "on the host";
    add(line, [&](Line&) { return reference_.yardstick; });
  }

  void cublas() {
    Line line;
    line.name = "cublas_softmax";
    line.kernel = line.name;
#if defined(FLASHATTN_TEST_CUBLAS)
    if (!test::have_device()) line.skipped = "no CUDA device";
    add(line, [&](Line&) {
      const test::DeviceReference device_reference(test::shape_of(problem_));
      PlacedCall call(contiguous(), inputs_, Side::device);
      const fa_forward_args& args = call.args();
      void* const workspace = call.extra_memory(device_reference.workspace_bytes());
      device_reference.run(args.q.data, args.k.data, args.v.data, args.out.data, args.lse, workspace,
                           nullptr);
      return call.read();
    });
#else
    line.skipped = "built without cuBLAS";
    lines_.push_back(finished(line));
#endif
  }

  void cudnn() {
    Line line;
    line.name = "cudnn";
    if (!test::have_device()) line.skipped = "no CUDA device";
    add(line, [&](Line& of) -> Outputs<float> {
      std::string why_not = cudnn_version(nullptr);
      of.kernel = "cuDNN " + why_not;
      const std::unique_ptr<CudnnSdpa> sdpa =
          CudnnSdpa::create(bench::shape_of(contiguous()), problem_.lse, &why_not);
      if (!sdpa) {
        of.skipped = one_line(why_not);
        return {};
      }
      of.kernel += ", " + sdpa->engine();
      PlacedCall call(contiguous(), inputs_, Side::device);
      const fa_forward_args& args = call.args();
      sdpa->run(args.q.data, args.k.data, args.v.data, args.out.data, args.lse,
                call.extra_memory(sdpa->workspace_bytes()), nullptr);
      return call.read();
    });
  }

 private:
  Problem contiguous() const {
    Problem p = problem_;
    p.layout = test::Layout::bhsd;
    p.dtype_out = Dtype::none;
    return p;
  }

  Line finished(Line line) const {
    line.dtype = problem_.dtype;
    line.skipped = one_line(line.skipped);
    line.failed = one_line(line.failed);
    return line;
  }

  void add(Line line, const std::function<Outputs<float>(Line&)>& run) {
    try {
      if (line.skipped.empty()) {
        const Outputs<float> got = run(line);
        if (line.skipped.empty()) compare(line, got);
      }
    } catch (const Unsupported& refusal) {
      line.skipped = refusal.what();
    } catch (const std::exception& error) {
      line.failed = error.what();
    }
    lines_.push_back(finished(line));
  }

  void compare(Line& line, const Outputs<float>& got) const {
    const std::int64_t size[4] = {problem_.B, problem_.H, problem_.M, problem_.Dv};
    line.stats = test::error_stats(got.out, reference_.oracle.out, size);
    if (problem_.lse) line.lse_max_abs = lse_error(got.lse, reference_.oracle.lse);
    line.broken = test::check_forward(line.of_library ? problem_ : contiguous(), reference_, inputs_, got);
  }

  const Problem& problem_;
  const Reference& reference_;
  const Inputs& inputs_;
  std::vector<Line>& lines_;
};

/// Measures everything. The fp64 oracle, by far the longest step, runs once for fp32 and fp16, and once more
/// where a bf16 row is asked for.
std::vector<Line> measure(const Problem& asked, const std::vector<fa_kernel_info>& rows) {
  Problem problem = asked;
  problem.dtype = Dtype::float16;
  Inputs inputs = test::make_inputs(problem);
  Reference reference;
  std::vector<Line> lines;
  for (const Dtype dtype : {Dtype::float32, Dtype::float16, Dtype::bfloat16}) {
    std::vector<fa_kernel_info> of_dtype = rows;
    std::erase_if(of_dtype,
                  [dtype](const fa_kernel_info& row) { return row.dtype != static_cast<fa_dtype>(dtype); });
    if (of_dtype.empty()) continue;
    problem.dtype = dtype;
    if (dtype == Dtype::bfloat16) {
      for (std::vector<float>* values : {&inputs.q, &inputs.k, &inputs.v}) {
        for (float& x : *values) x = test::round_to(dtype, x);
      }
      reference.oracle = {};
    }
    if (reference.oracle.out.empty()) reference.oracle = test::oracle_forward(problem, inputs);
    reference.yardstick = test::yardstick_forward(problem, inputs);

    Measurement measurement(problem, reference, inputs, lines);
    measurement.yardstick();
    for (const fa_kernel_info& row : of_dtype) measurement.library_row(row);
    measurement.cublas();
    if (dtype != Dtype::float32) measurement.cudnn();
  }
  return lines;
}

/// The line without its element type, which the rows name.
std::string common_line(const Problem& problem) {
  const std::string line = test::to_string(problem);
  return line.substr(line.find(' ') + 1);
}

void print(const Problem& problem, const std::vector<Line>& lines) {
  std::printf("%s, inputs rounded to fp16, against fp64\n\n", common_line(problem).c_str());
  std::printf("%-15s %-5s %11s %11s %11s %11s %11s  %-7s %s\n", "row", "type", "max abs", "mean abs", "RMSE",
              "relative L2", "LSE max abs", "rule", "what ran");
  for (const Line& line : lines) {
    std::printf("%-15s %-5s ", line.name.c_str(), short_name(line.dtype));
    if (!line.skipped.empty()) {
      std::printf("skipped: %s\n", line.skipped.c_str());
    } else if (!line.failed.empty()) {
      std::printf("FAILED: %s\n", line.failed.c_str());
    } else {
      std::printf("%11.3e %11.3e %11.3e %11.3e ", line.stats.max_abs, line.stats.mean_abs, line.stats.rmse,
                  line.stats.relative_l2);
      if (problem.lse) {
        std::printf("%11.3e", line.lse_max_abs);
      } else {
        std::printf("%11s", "-");
      }
      std::printf("  %-7s %s\n", line.broken.empty() ? "holds" : "BROKEN", line.kernel.c_str());
    }
  }
  for (const Line& line : lines) {
    if (line.broken.empty()) continue;
    std::printf("\n%s %s breaks the rule: %s\n", line.name.c_str(), short_name(line.dtype),
                line.broken.c_str());
  }
  std::fflush(stdout);
}

void write_json(std::ostream& out, const Facts& facts, const Problem& problem,
                const std::vector<Line>& lines) {
  out << "{\n  \"facts\": " << json_object(facts) << ",\n  \"problem\": " << quoted(common_line(problem))
      << ",\n  \"inputs\": \"fp16\",\n  \"rows\": [";
  const char* separator = "";
  for (const Line& line : lines) {
    out << separator << "\n    {\"row\": " << quoted(line.name) << ", \"dtype\": \"" << short_name(line.dtype)
        << "\", \"kernel\": " << quoted(line.kernel);
    separator = ",";
    if (!line.measured()) {
      out << ", \"state\": " << (line.skipped.empty() ? "\"failed\"" : "\"skipped\"")
          << ", \"reason\": " << quoted(line.skipped.empty() ? line.failed : line.skipped) << '}';
      continue;
    }
    out << ", \"state\": \"measured\", \"max_abs\": " << number(line.stats.max_abs)
        << ", \"mean_abs\": " << number(line.stats.mean_abs) << ", \"rmse\": " << number(line.stats.rmse)
        << ", \"relative_l2\": " << number(line.stats.relative_l2);
    if (problem.lse) out << ", \"lse_max_abs\": " << number(line.lse_max_abs);
    out << ", \"rule\": " << (line.broken.empty() ? "\"holds\"" : quoted(line.broken)) << '}';
  }
  out << "\n  ]\n}\n";
}

int run(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  if (options.help) {
    std::cout << kHelp;
    return 0;
  }
  Problem problem = parse_problem_word("--problem", options.problem);
  if (options.seed_given) problem.seed = options.seed;
  const std::vector<fa_kernel_info> rows = table_rows(options.rungs);
  std::ofstream json;
  if (!options.json.empty()) {
    json.open(options.json);
    if (!json) throw UsageError("--json: cannot write '" + options.json + "'");
  }

  Facts facts = run_facts(argc, argv);
  for (auto& fact : device_facts()) facts.push_back(std::move(fact));
  for (const auto& [name, value] : facts) std::printf("%-13s %s\n", name.c_str(), value.c_str());
  std::printf("\n");
  const std::vector<Line> lines = measure(problem, rows);
  print(problem, lines);
  if (json.is_open()) write_json(json, facts, problem, lines);
  return std::any_of(lines.begin(), lines.end(), [](const Line& line) { return line.bad(); }) ? 1 : 0;
}

}  // namespace

}  // namespace fa::bench

int main(int argc, char** argv) {
  return fa::bench::run_program("accuracy_attention", fa::bench::run, argc, argv);
}
