#pragma once
#include <array>
#include <string_view>
#include <vector>

namespace tandem::data {

/// The characters that can be classes, in a fixed order, along which `classes` counts, and in three tiers:
///   gb2312      3,755  GB 2312 level 1, the everyday characters, in the standard's order (by sound)
///   uro        17,147  the rest of U+4E00-9FA5 (Unicode 1.1), by code point
///   extension  81,354  U+3400-4DBF, U+9FA6-9FFF, U+20000-323AF, by code point; not all of them are assigned
/// A font holds some of each; a character that no training font draws is skipped.
enum class Tier { gb2312, uro, extension };

inline constexpr std::array kTiers = {Tier::gb2312, Tier::uro, Tier::extension};

const char* name_of(Tier tier);

/// All characters of a tier, in the order above.
std::vector<char32_t> characters(Tier tier);

/// GB 2312 level 1 in the standard's order.
std::u16string_view gb2312_level1();

/// The character and its code point, for people: "啊 U+554A".
std::string character_name(char32_t character);

}  // namespace tandem::data
