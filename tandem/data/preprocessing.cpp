#include "tandem/data/preprocessing.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <string>

#include "tandem/base/error.h"

namespace tandem::data {
namespace {

void check_count(const char* name, size_t count, int64_t channels) {
  if (count == 1 || count == static_cast<size_t>(channels)) return;
  throw SettingsError(std::string(name) + " has " + std::to_string(count) + " numbers, wanted 1" +
                      (channels == 1 ? "" : " or " + std::to_string(channels) + ", one a channel"));
}

void check_number(bool good, const char* name, double value, const char* wanted) {
  if (!good) throw SettingsError(std::string(name) + " is " + std::to_string(value) + ", wanted " + wanted);
}

double of_channel(const std::vector<double>& numbers, size_t channel) {
  return numbers.size() == 1 ? numbers[0] : numbers[channel];
}

}  // namespace

void Normalization::check(int64_t channels) const {
  check_count("mean", mean.size(), channels);
  check_count("deviation", deviation.size(), channels);
  for (const double one : mean) check_number(std::isfinite(one), "mean", one, "a number");
  for (const double one : deviation) {
    check_number(std::isfinite(one) && one > 0, "deviation", one, "a number over 0");
  }
}

std::vector<ChannelScale> channel_scales(const Normalization& normalization, int64_t channels) {
  normalization.check(channels);
  std::vector<ChannelScale> scales;
  for (size_t channel = 0; channel < static_cast<size_t>(channels); ++channel) {
    const double mean = of_channel(normalization.mean, channel);
    const double deviation = of_channel(normalization.deviation, channel);
    scales.push_back({static_cast<float>(1 / (255 * deviation)), static_cast<float>(-mean / deviation)});
  }
  return scales;
}

void convert(std::span<const uint8_t> bytes, const ChannelScale& scale, float* out) {
  for (size_t i = 0; i < bytes.size(); ++i) out[i] = static_cast<float>(bytes[i]) * scale.factor + scale.offset;
}

void preprocess(std::span<const std::byte> file, const Preprocessing& preprocessing, std::span<float> out) {
  const auto& form = preprocessing.form;
  const auto scales = channel_scales(preprocessing.normalization, num_planes(form));
  std::vector<uint8_t> pixels(out.size());
  read_planes(file, form, pixels);
  const auto plane = static_cast<size_t>(form.height * form.width);
  for (size_t channel = 0; channel < scales.size(); ++channel) {
    convert(std::span(pixels).subspan(channel * plane, plane), scales[channel], out.data() + channel * plane);
  }
}

}  // namespace tandem::data
