/// The test programs' main: GoogleTest's flags, and --no-prefill (for compute-sanitizer's initcheck, which
/// counts a memset as initialisation), --no-guards (for memcheck, which takes a guard band for part of the
/// buffer).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "tests/support/memory.hpp"
#include "tests/support/run.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--no-prefill") == 0) {
      fa::test::prefill = false;
    } else if (std::strcmp(argv[i], "--no-guards") == 0) {
      fa::test::guard_bytes = 0;
    } else {
      std::fprintf(stderr, "unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  const int status = RUN_ALL_TESTS();
  // ctest's word for "skipped": every test that was chosen skipped itself. A failure is never one.
  constexpr int kSkipped = 77;
  const testing::UnitTest& unit = *testing::UnitTest::GetInstance();
  return status == 0 && unit.successful_test_count() == 0 && unit.skipped_test_count() > 0 ? kSkipped
                                                                                           : status;
}
