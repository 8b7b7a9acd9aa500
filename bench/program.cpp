#include "bench/program.hpp"

#include <iostream>

namespace fa::bench {

test::Problem parse_problem_word(const std::string& part, const std::string& line) {
  try {
    return test::parse_problem(line);
  } catch (const std::invalid_argument& error) {
    throw UsageError(part + ": " + error.what());
  }
}

int run_program(const char* name, int (*run)(int, char**), int argc, char** argv, int failed) {
  try {
    return run(argc, argv);
  } catch (const UsageError& error) {
    std::cerr << name << ": " << error.what() << " (see --help)\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << '\n';
    return failed;
  }
}

}  // namespace fa::bench
