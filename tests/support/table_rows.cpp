#include "tests/support/table_rows.hpp"

#include <ostream>
#include <stdexcept>

namespace fa::test {
namespace {

const char* short_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32:
      return "fp32";
    case Dtype::float16:
      return "fp16";
    case Dtype::bfloat16:
      return "bf16";
    case Dtype::none:
      break;
  }
  return "none";
}

}  // namespace

std::vector<Row> rows_of(Pass pass) {
  std::vector<Row> rows;
  for (std::int32_t i = 0; i < fa_kernel_count(); ++i) {
    fa_kernel_info info = {};
    info.size = sizeof info;
    if (fa_kernel_info_get(i, &info) != FA_OK) throw std::runtime_error(fa_last_error());
    if (info.pass != static_cast<fa_pass>(pass)) continue;
    const Version version = static_cast<Version>(info.version);
    rows.push_back({version, static_cast<Dtype>(info.dtype),
                    version == Version::CPU ? Side::host : Side::device, info.built != 0, info.name});
  }
  return rows;
}

std::string row_name(const Row& row) {
  return std::string(name_of(row.version)) + "_" + short_name(row.dtype);
}

std::ostream& operator<<(std::ostream& os, const Row& row) {
  return os << row.kernel;
}

}  // namespace fa::test
