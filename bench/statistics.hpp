/// Medians and paired ratios of samples.
#pragma once

#include <vector>

namespace fa::bench {

/// 0 of none; the mean of the two middle values of an even number.
double median(std::vector<double> values);

/// a[i] / b[i], over as many samples as both have: sample i of both was taken in the same round, so that
/// what disturbed one disturbed the other.
std::vector<double> paired_ratios(const std::vector<double>& a, const std::vector<double>& b);

/// a[i] - b[i], likewise.
std::vector<double> paired_differences(const std::vector<double>& a, const std::vector<double>& b);

/// Median distance of the ratios from 1: what a series measured against itself gives is the noise floor.
double distance_from_one(const std::vector<double>& ratios);

}  // namespace fa::bench
