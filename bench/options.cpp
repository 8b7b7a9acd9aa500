#include "bench/options.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <string_view>

namespace fa::bench {

namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::size_t start = 0;
  while (true) {
    const std::size_t comma = text.find(',', start);
    words.push_back(text.substr(start, comma - start));
    if (comma == std::string::npos) return words;
    start = comma + 1;
  }
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

Version parse_version(const char* flag, const std::string& word) {
  constexpr Version kAll[] = {V0, V1, V2, V3, V4, V5, V6, V7, V8, CPU, Auto};
  for (const Version version : kAll) {
    if (lower(name_of(version)) == lower(word)) return version;
  }
  throw UsageError(std::string(flag) + ": '" + word + "' is none of V0 ... V8, CPU, Auto");
}

int parse_threads(const std::string& word) {
  int value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < 1 || value > 4096) {
    throw UsageError("--threads: '" + word + "' is not a number from 1 to 4096");
  }
  return value;
}

std::vector<Clock> clocks_of(const std::string& mode) {
  if (mode == "graph") return {Clock::graph};
  if (mode == "events") return {Clock::events};
  return {Clock::graph, Clock::events};
}

std::string one_of(const char* flag, const std::string& value, std::initializer_list<const char*> allowed) {
  std::string choices;
  for (const char* word : allowed) {
    if (value == word) return value;
    choices += choices.empty() ? word : std::string(" or ") + word;
  }
  throw UsageError(std::string(flag) + ": '" + value + "' is not " + choices);
}

/// Walks over the words; a flag's value is what follows '=' or the next word.
class Words {
 public:
  Words(int argc, char** argv) : argc_(argc), argv_(argv) {}

  bool next() {
    if (++at_ >= argc_) return false;
    const std::string_view word = argv_[at_];
    const std::size_t equals = word.find('=');
    flag_ = std::string(word.substr(0, equals));
    has_value_ = equals != std::string_view::npos;
    value_ = has_value_ ? std::string(word.substr(equals + 1)) : "";
    return true;
  }
  const std::string& flag() const { return flag_; }
  char* word() const { return argv_[at_]; }

  std::string value() {
    if (has_value_) return value_;
    if (at_ + 1 >= argc_) throw UsageError(flag_ + " needs a value");
    return argv_[++at_];
  }
  bool set() const {
    if (has_value_) throw UsageError(flag_ + " takes no value");
    return true;
  }

 private:
  int argc_;
  char** argv_;
  int at_ = 0;
  std::string flag_, value_;
  bool has_value_ = false;
};

}  // namespace

Options parse_options(int& argc, char** argv) {
  Options options;
  std::vector<char*> kept = {argv[0]};
  Words words(argc, argv);
  bool ablations = false;
  while (words.next()) {
    const std::string& flag = words.flag();
    if (flag == "--problem") {
      options.problem_lines.push_back(words.value());
    } else if (flag == "--problems") {
      options.problem_files.push_back(words.value());
    } else if (flag == "--problems-dir") {
      options.problems_dir = words.value();
    } else if (flag == "--version") {
      for (const std::string& word : split(words.value()))
        options.selection.versions.push_back(parse_version("--version", word));
    } else if (flag == "--ablations") {
      for (const std::string& word : split(words.value()))
        options.selection.ablations.push_back(parse_version("--ablations", word));
      ablations = true;
    } else if (flag == "--candidates") {
      for (const std::string& word : split(words.value()))
        options.selection.ablations.push_back(parse_version("--candidates", word));
      options.selection.candidates = true;
    } else if (flag == "--threads") {
      for (const std::string& word : split(words.value()))
        options.selection.threads.push_back(parse_threads(word));
    } else if (flag == "--side") {
      options.side = one_of("--side", words.value(), {"auto", "host", "device"});
    } else if (flag == "--mode") {
      options.mode = one_of("--mode", words.value(), {"graph", "events", "both"});
      options.selection.clocks = clocks_of(options.mode);
    } else if (flag == "--protocol") {
      options.protocol = one_of("--protocol", words.value(), {"full", "short"});
    } else if (flag == "--json") {
      options.json = words.value();
    } else if (flag == "--full") {
      options.full = words.set();
    } else if (flag == "--list") {
      options.list = words.set();
    } else if (flag == "--help" || flag == "-h") {
      options.help = words.set();
    } else if (const std::string_view word = words.word();
               word == "--benchmark_format=csv" || word == "--benchmark_out_format=csv") {
      // Google Benchmark's CSV asks for the same counters in every row.
      throw UsageError("rows have counters of their own, which CSV cannot hold: use json");
    } else if (flag.rfind("--benchmark_", 0) == 0 || flag == "--v") {
      kept.push_back(words.word());
    } else {
      throw UsageError("unknown flag '" + std::string(words.word()) + "'");
    }
  }
  const Selection& selection = options.selection;
  if (ablations && selection.candidates)
    throw UsageError("--ablations and --candidates measure different rows: one of them");
  if (!selection.ablations.empty() &&
      (options.side == "host" || !selection.threads.empty() || !selection.versions.empty())) {
    throw UsageError(std::string(selection.candidates ? "--candidates" : "--ablations") +
                     " measures rungs of a device and their variants: without --side host, --threads, "
                     "--version");
  }
  argc = static_cast<int>(kept.size());
  std::copy(kept.begin(), kept.end(), argv);
  return options;
}

const char* help_text() {
  return R"(bench_attention: how fast attention is here, against this machine's own limits.

  bench_attention                          a first look: on a GPU the ladder's sweep, else a sweep and real models'
                                           shapes; what is slow is skipped
  bench_attention --full                   everything, by the protocol of recorded figures
  bench_attention --problem 'fp32 B1 H8 S1024 D64 causal'

  --problem LINE     a problem (repeatable); bench/README.md has the grammar
  --problems FILE    a file of problems, or the name of one that comes along: gpt2_small (repeatable)
  --problems-dir DIR where such files are looked for first
  --version LIST     rungs: V2,CPU (default: what the side has)
  --ablations LIST   rungs with their variants, each against its rung: V4,V5 (default problems: the ladder's with a
                     full mask); the build needs FLASHATTN_ABLATIONS
  --candidates LIST  the same with the tile sizes that were tried: V7
  --threads LIST     host threads: 1,2 (default: one and all for sweeps and --problem, all for files)
  --side WHERE       host, device, or auto: the device where there is one; with --threads the host
  --mode NAME        on a device: graph (default: kernel time alone), events (host time shows), or both
  --protocol NAME    full (default for --full, --problem, --problems, and on a device) or short
  --full             every problem set; skip nothing
  --json FILE        every sample, with the facts of the run
  --list             the rows, without running them
  --benchmark_...    flags of Google Benchmark: --benchmark_filter=REGEX, --benchmark_out=FILE, ...

Exit code: 0; 1 where a result was wrong or a row failed; 2 for a bad command line.
)";
}

}  // namespace fa::bench
