/// The record of a run: facts, protocol, and every sample of every row.
#pragma once

#include <ostream>
#include <vector>

#include "bench/run_facts.hpp"
#include "bench/runner.hpp"

namespace fa::bench {

void write_json(std::ostream& out, const Facts& facts, const Protocol& protocol,
                const std::vector<Group>& groups);

}  // namespace fa::bench
