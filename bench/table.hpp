/// The table on the terminal: a line per row, as Google Benchmark reports them.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/run_facts.hpp"
#include "bench/runner.hpp"

namespace fa::bench {

void print_facts(std::ostream& out, const Facts& facts);

/// Prints from the groups, not from Google Benchmark's copies, so that every word is there.
class Table : public benchmark::BenchmarkReporter {
 public:
  Table(const Facts& facts, const std::vector<Group>& groups);

  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

 private:
  struct Place {
    const Group* group;
    const Row* row;
  };

  const Facts& facts_;
  std::map<std::string, Place> rows_;  // by name
  const Group* printed_ = nullptr;     // the group whose heading was printed last
};

}  // namespace fa::bench
