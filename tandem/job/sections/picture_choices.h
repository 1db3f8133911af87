#pragma once
#include "tandem/data/preprocessing.h"
#include "tandem/job/sections/choice.h"

// The texts of what is done to a picture, in settings and in model cards.
namespace tandem::job {

inline constexpr std::array<Choice<data::Orientation>, 2> kOrientations = {
    {{"exif", data::Orientation::exif}, {"stored", data::Orientation::stored}}};
inline constexpr std::array<Choice<data::Fit>, 2> kFits = {
    {{"stretch", data::Fit::stretch}, {"crop", data::Fit::crop}}};
inline constexpr std::array<Choice<data::Filter>, 3> kFilters = {
    {{"nearest", data::Filter::nearest}, {"bilinear", data::Filter::bilinear}, {"bicubic", data::Filter::bicubic}}};
inline constexpr std::array<Choice<data::Colours>, 3> kColours = {
    {{"rgb", data::Colours::rgb}, {"bgr", data::Colours::bgr}, {"grey", data::Colours::grey}}};

}  // namespace tandem::job
