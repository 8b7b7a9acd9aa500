#include "bench/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace fa::bench {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

std::vector<double> paired_ratios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios(std::min(a.size(), b.size()));
  for (std::size_t i = 0; i < ratios.size(); ++i) ratios[i] = a[i] / b[i];
  return ratios;
}

std::vector<double> paired_differences(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> differences(std::min(a.size(), b.size()));
  for (std::size_t i = 0; i < differences.size(); ++i) differences[i] = a[i] - b[i];
  return differences;
}

double distance_from_one(const std::vector<double>& ratios) {
  std::vector<double> distances;
  for (const double ratio : ratios) distances.push_back(std::abs(ratio - 1));
  return median(distances);
}

}  // namespace fa::bench
