/// The command line of bench_attention, without Google Benchmark's own flags.
#pragma once

#include <string>
#include <vector>

#include "bench/program.hpp"
#include "bench/side.hpp"

namespace fa::bench {

struct Options {
  std::vector<std::string> problem_lines;
  std::vector<std::string> problem_files;
  std::string problems_dir;
  Selection selection;
  std::string side = "auto";  // "auto", "host", "device"
  std::string mode;           // "graph", "events", "both"; empty: graph
  std::string protocol;       // "full", "short"; empty: by what is run
  std::string json;           // path; empty: none
  bool full = false;
  bool list = false;
  bool help = false;
};

/// Reads our flags and takes them out of argv; those that start with --benchmark_ stay. Throws UsageError.
Options parse_options(int& argc, char** argv);

const char* help_text();

}  // namespace fa::bench
