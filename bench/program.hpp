/// What the main() of every program here does: reports what its run throws, and ends with a status.
#pragma once

#include <stdexcept>

namespace fa::bench {

/// A word of the command line that means nothing. The text is for the user.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// run(argc, argv); what it throws goes to stderr, after the program's `name`, and becomes 2 for a UsageError
/// and `failed` for any other std::exception.
int run_program(const char* name, int (*run)(int, char**), int argc, char** argv, int failed = 2);

}  // namespace fa::bench
