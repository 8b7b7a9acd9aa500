/// What the main() of every program here does: reports what its run throws, and ends with a status.
#pragma once

#include <stdexcept>
#include <string>

#include "tests/support/problem.hpp"

namespace fa::bench {

/// A word of the command line that means nothing. The text is for the user.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The problem that a part of the command line spells. Throws UsageError naming that part and the word in it.
test::Problem parse_problem_word(const std::string& part, const std::string& line);

/// run(argc, argv); what it throws goes to stderr, after the program's `name`, and becomes 2 for a UsageError
/// and `failed` for any other std::exception.
int run_program(const char* name, int (*run)(int, char**), int argc, char** argv, int failed = 2);

}  // namespace fa::bench
