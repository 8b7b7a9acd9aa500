/// The facts that every figure is given with: machine, library, date, command.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fa::bench {

using Facts = std::vector<std::pair<std::string, std::string>>;

Facts run_facts(int argc, char** argv);

}  // namespace fa::bench
