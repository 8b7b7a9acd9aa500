#include "bench/program.hpp"

#include <iostream>

namespace fa::bench {

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
