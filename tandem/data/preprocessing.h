#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/data/image/image_planes.h"

namespace tandem::data {

/// value = (byte / 255 - mean) / deviation: -1..1 by default.
struct Normalization {
  std::vector<double> mean{0.5}, deviation{0.5};  // one number for all channels, or one a channel

  /// Throws SettingsError unless there are 1 or `channels` numbers of each, all finite and the deviations positive.
  void check(int64_t channels) const;

  bool operator==(const Normalization&) const = default;
};

/// Everything between the bytes of an image's file and the model's floats. What a model is used on must be treated as
/// the images that it was trained on.
struct Preprocessing {
  ImageForm form;
  Normalization normalization;

  bool operator==(const Preprocessing&) const = default;
};

/// Decodes an image's file and writes num_planes(form) * height * width floats: bit for bit those of the image in a
/// batch of a Loader with the same form and normalization and without augmentation.
/// Throws as read_planes(), SettingsError (normalization), c10::ValueError (size of `out`).
void preprocess(std::span<const std::byte> file, const Preprocessing& preprocessing, std::span<float> out);

/// A channel's value = byte * factor + offset.
struct ChannelScale {
  float factor, offset;
};

/// One scale a channel. Throws as Normalization::check().
std::vector<ChannelScale> channel_scales(const Normalization& normalization, int64_t channels);

/// Converts bytes of one channel to as many floats.
void convert(std::span<const uint8_t> bytes, const ChannelScale& scale, float* out);

}  // namespace tandem::data
