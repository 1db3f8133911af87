#include "tandem/data/image_folder.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/quote.h"
#include "tandem/data/image/class_folder.h"
#include "tandem/data/image/folder_layout.h"
#include "tandem/data/image/hold_out.h"
#include "tandem/data/image/image_files.h"
#include "tandem/storage/checksum.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

/// Rejects a single class, for which every prediction would be right.
void check_several(const std::vector<ClassFolder>& classes, const fs::path& folder) {
  if (classes.size() > 1) return;
  throw DataError("image folder '" + folder.string() + "' has one class, '" + classes[0].name + "', wanted two or more",
                  remedy_for_one_class(folder / classes[0].name));
}

int64_t median_side(const std::vector<ClassFolder>& classes) {
  std::vector<uint16_t> sides;
  for (const auto& one : classes) sides.insert(sides.end(), one.sides.begin(), one.sides.end());
  const auto middle = sides.begin() + static_cast<int64_t>(sides.size() / 2);
  std::ranges::nth_element(sides, middle);
  return *middle;
}

/// A class's label is the index of its name among the training classes.
ImageSamples label_all(const std::vector<ClassFolder>& classes, const std::vector<std::string>& names,
                       const fs::path& folder) {
  ImageSamples samples;
  for (const auto& one : classes) {
    const auto at = std::ranges::lower_bound(names, one.name);
    if (at == names.end() || *at != one.name) {
      throw DataError("class folder '" + (folder / one.name).string() + "' has no twin among the training classes",
                      "add training images of it, or remove it");
    }
    for (const auto& file : one.files) samples.push_back({file, at - names.begin()});
  }
  return samples;
}

using ClassNames = std::shared_ptr<const std::vector<std::string>>;

std::unique_ptr<ImageFiles> image_set(const fs::path& place, ImageSamples samples, const ClassNames& names,
                                      const ImageForm& form) {
  ImageFileList list{.num_classes = static_cast<int64_t>(names->size()), .names = names, .form = form};
  list.description = "images   " + format_count(list.num_classes) + " classes · " +
                     format_count(static_cast<int64_t>(samples.size())) + " images from " + place.string();
  list.files = std::move(samples);
  return std::make_unique<ImageFiles>(std::move(list));
}

/// Adds the last two names of a path, the class's and the file's: a folder may move.
void add_place(storage::Checksum& checksum, const fs::path& file) {
  const auto name = file.parent_path().filename().string() + '/' + file.filename().string() + '\0';
  checksum.update(std::as_bytes(std::span(name)));
}

std::string fingerprint_of(const ImageSamples& samples) {
  storage::Checksum checksum;
  for (const auto& sample : samples) add_place(checksum, sample.path);
  return checksum.hex();
}

ImageSamples every_image(const std::vector<ClassFolder>& classes) {
  ImageSamples samples;
  for (size_t label = 0; label < classes.size(); ++label) {
    for (const auto& file : classes[label].files) samples.push_back({file, static_cast<int64_t>(label)});
  }
  return samples;
}

std::vector<std::string> names_of(const std::vector<ClassFolder>& classes) {
  std::vector<std::string> names;
  for (const auto& one : classes) names.push_back(one.name);
  return names;
}

/// The label that a name has in a list of names.
class LabelOf {
 public:
  explicit LabelOf(const std::vector<std::string>& names) {
    for (const auto& name : names) labels_.emplace(name, static_cast<int64_t>(labels_.size()));
  }
  bool knows(const ClassFolder& one) const { return labels_.contains(one.name); }
  int64_t operator()(const ClassFolder& one) const { return labels_.at(one.name); }

 private:
  std::unordered_map<std::string_view, int64_t> labels_;
};

DataError other_class(const fs::path& folder, const std::vector<std::string>& names) {
  return DataError("class folder '" + folder.string() + "' is none of the model's " +
                       format_count(static_cast<int64_t>(names.size())) + " classes, wanted one of them, as " +
                       quote(names.front()),
                   "rename it, or remove it");
}

/// The images, whose labels are numbers in `classes`, with the labels of the classes' names.
ImageSamples label_by_name(ImageSamples samples, const std::vector<ClassFolder>& classes, const LabelOf& label_of) {
  std::vector<int64_t> labels;
  for (const auto& one : classes) labels.push_back(label_of(one));
  for (auto& sample : samples) sample.label = labels[static_cast<size_t>(sample.label)];
  return samples;
}

void check(const ImageFolderOptions& options) {
  check_image_side("size", options.size);
  check_hold_out(options.hold_out);
  if (std::error_code ignored; !fs::is_directory(options.folder, ignored)) {
    const bool is_there = fs::exists(options.folder, ignored);
    throw DataError("image folder '" + options.folder.string() + (is_there ? "' is a file" : "' does not exist") +
                    ", wanted a folder with a sub-folder for each class");
  }
}

std::string left_out_text(const ImageFolderOptions& options, const KnownClasses& known, bool has_test_set,
                          bool is_training_folder) {
  if (is_training_folder) {
    return " · those held out of training, 1 of " + std::to_string(options.hold_out) + " of each class";
  }
  std::error_code ignored;
  const bool has_changed = !has_test_set && fs::equivalent(options.folder, known.training_folder, ignored);
  return has_changed ? " · none left out: other images, or another data.hold_out, than in training, and images that "
                       "were trained on are among them"
                     : " · none left out";
}

}  // namespace

Split image_folder(const ImageFolderOptions& options) {
  check(options);
  const auto [train_place, test_place, unused] = find_layout(options.folder, options.layout);
  PassedOver passed_over;
  const auto classes = list_classes(train_place, train_place == options.folder, passed_over);
  check_several(classes, train_place);
  const auto names = std::make_shared<std::vector<std::string>>(names_of(classes));
  auto [train, test] = test_place
                           ? std::pair(label_all(classes, *names, train_place),
                                       label_all(list_classes(*test_place, false, passed_over), *names, *test_place))
                           : hold_out(classes, options.hold_out);
  if (test.empty()) {
    throw DataError("image folder '" + options.folder.string() + "' has one image a class, wanted two to hold one out",
                    "add images, or make train and test folders in it");
  }
  const std::string held =
      test_place ? test_place->string() : "1 of " + std::to_string(options.hold_out) + " of each class";
  Split split;
  const auto form = with_sides(options.form, options.size, options.size);
  split.train = image_set(train_place, std::move(train), names, form);
  split.test = image_set(test_place.value_or(train_place), std::move(test), names, form);
  split.stored_side = median_side(classes);
  split.summary = split.train->describe() + " · held out: " + held;
  if (!unused.empty()) {
    split.summary += " · in neither set: " + count_text(static_cast<int64_t>(unused.size()), "folder", unused.front());
  }
  split.summary += text_of(passed_over);
  return split;
}

std::string image_fingerprint(const Dataset& images) {
  storage::Checksum checksum;
  for (int64_t i = 0; i < images.size(); ++i) add_place(checksum, images.sample_name(i));
  return checksum.hex();
}

Split test_folder(const ImageFolderOptions& options, const KnownClasses& known) {
  check(options);
  const auto [train_place, test_place, unused] = find_layout(options.folder, options.layout);
  PassedOver passed_over;
  const auto place = test_place.value_or(train_place);
  const auto classes = list_classes(place, place == options.folder, passed_over);
  const LabelOf label_of(known.names);
  const auto other = std::ranges::find_if(classes, [&](const auto& one) { return !label_of.knows(one); });
  const bool has_others = other != classes.end();
  if (has_others && !known.takes_others) throw other_class(place / other->name, known.names);
  auto [trained, samples] = hold_out(classes, options.hold_out);
  const bool is_training_folder = !test_place && fingerprint_of(trained) == known.training_images;
  if (!is_training_folder) samples = every_image(classes);
  Split split;
  split.has_other_classes = has_others;
  split.test =
      image_set(place, has_others ? std::move(samples) : label_by_name(std::move(samples), classes, label_of),
                std::make_shared<std::vector<std::string>>(has_others ? names_of(classes) : known.names), options.form);
  split.summary = split.test->describe() + left_out_text(options, known, test_place.has_value(), is_training_folder) +
                  text_of(passed_over);
  if (has_others) split.summary += " · " + quote(other->name) + " is none of the model's classes: only features count";
  return split;
}

}  // namespace tandem::data
