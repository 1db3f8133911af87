#pragma once
#include <array>
#include <cstdint>
#include <numeric>
#include <string_view>

namespace tandem {

/// What a byte is for.
enum class Category : uint8_t { parameters, gradients, optimizer, activations, buffers, communication, other };

inline constexpr int kNumCategories = 7;
inline constexpr std::array<std::string_view, kNumCategories> kCategoryNames = {
    "parameters", "gradients", "optimizer", "activations", "buffers", "communication", "other"};

using CategoryBytes = std::array<int64_t, kNumCategories>;

/// The sum of all categories.
constexpr int64_t total_of(const CategoryBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

}  // namespace tandem
