#include "tandem/job/sections/data.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/quote.h"
#include "tandem/data/face_records.h"
#include "tandem/data/market1501.h"
#include "tandem/data/small_images.h"
#include "tandem/data/subset.h"
#include "tandem/data/synthetic.h"
#include "tandem/job/job.h"
#include "tandem/job/sections/choice.h"
#include "tandem/job/sections/naming.h"
#include "tandem/job/sections/picture_choices.h"
#include "tandem/job/sections/section.h"
#include "tandem/settings/value.h"

namespace tandem::job {
namespace {

using Shape = std::array<int64_t, 3>;

constexpr double kLeastDeviation = 1e-6;

Shape grey_shape(const Job& job) { return {1, job.data.size, job.data.size}; }
Shape square_shape(const Job& job) { return {3, job.data.size, job.data.size}; }
Shape tall_shape(const Job& job) { return {3, job.data.size, job.data.size / 2}; }

data::Split open_glyphs(const Job& job) {
  auto split = data::glyphs(job.data.glyphs);
  if (job.data.unseen > 0)
    split.retrieval = data::unseen_glyphs(job.data.glyphs, split.train->num_classes(), job.data.unseen);
  return split;
}

data::Split open_synthetic(const Job& job) {
  data::SyntheticOptions options;
  if (job.head.classes > 0) options.classes = job.head.classes;
  options.shape = shape_for_model(job, square_shape(job));
  return data::synthetic(options);
}

data::Split open_images(const Job& job) {
  const auto& data = job.data;
  return data::image_folder({data.folder, data.size, data.hold_out, data.layout, data.preprocessing.form});
}

data::Split open_test_images(const Job& job, const data::KnownClasses& known) {
  const auto& data = job.data;
  return data::test_folder(
      {.folder = data.folder, .hold_out = data.hold_out, .layout = data.layout, .form = data.preprocessing.form},
      known);
}

data::Split open_faces(const Job& job) {
  const auto& data = job.data;
  return data::face_records({data.folder, data.size, data.hold_out, data.preprocessing.form});
}

data::Split open_market(const Job& job) {
  const auto& data = job.data;
  return data::market1501(
      {.folder = data.folder, .height = data.size, .width = data.size / 2, .form = data.preprocessing.form});
}

template <auto open>
data::Split open_small(const Job& job) {
  return open({.folder = job.data.folder, .size = job.data.size});
}

constexpr std::array<Choice<data::LayoutKind>, 3> kLayouts = {
    {{"auto", data::LayoutKind::automatic}, {"split", data::LayoutKind::split}, {"flat", data::LayoutKind::flat}}};

/// Numbers of a normalization that have a name.
struct NamedNormalization {
  std::string_view name;
  data::Normalization numbers;
};

const std::array<NamedNormalization, 5>& named_normalizations() {
  static const std::array<NamedNormalization, 5> all = {
      {{"half", {{0.5}, {0.5}}},
       {"imagenet", {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}}},
       {"cifar", {{0.49139968, 0.48215827, 0.44653124}, {0.24703233, 0.24348505, 0.26158768}}},
       {"mnist", {{0.13066}, {0.30811}}},
       {"fashion", {{0.28604}, {0.35302}}}}};
  return all;
}

/// All of them, as the choices of a setting.
std::vector<std::string_view> names_of_normalizations() {
  std::vector<std::string_view> names;
  for (const auto& named : named_normalizations()) names.push_back(named.name);
  return names;
}

std::optional<int64_t> side_of_cifar(const std::filesystem::path&) { return 32; }

constexpr std::array<DataSource, 9> kSources = {{
    {.name = "glyphs", .is_drawn = true, .is_ink = true, .image_shape = grey_shape, .open = open_glyphs},
    {.name = "synthetic", .has_test = false, .image_shape = square_shape, .open = open_synthetic},
    {.name = "images",
     .has_folder = true,
     .has_hold_out = true,
     .has_layout = true,
     .has_pictures = true,
     .image_shape = square_shape,
     .open = open_images,
     .open_test = open_test_images},
    {.name = "faces",
     .has_folder = true,
     .has_hold_out = true,
     .has_pictures = true,
     .sign = "train.rec",
     .image_shape = square_shape,
     .open = open_faces,
     .own_size = [](const std::filesystem::path& folder) { return data::face_side(folder); }},
    {.name = "market1501",
     .has_folder = true,
     .has_pictures = true,
     .sign = "bounding_box_train",
     .least_size = 16,
     .why_least = "the width is half of it",
     .image_shape = tall_shape,
     .open = open_market},
    {.name = "cifar10",
     .has_folder = true,
     .sign = "test_batch.bin",
     .image_shape = square_shape,
     .open = open_small<data::cifar10>,
     .own_size = side_of_cifar},
    {.name = "cifar100",
     .has_folder = true,
     .sign = "fine_label_names.txt",
     .image_shape = square_shape,
     .open = open_small<data::cifar100>,
     .own_size = side_of_cifar},
    {.name = "mnist",
     .has_folder = true,
     .sign = "train-images-idx3-ubyte",
     .is_grey = true,
     .image_shape = grey_shape,
     .open = open_small<data::mnist>,
     .own_size = data::idx_side},
    {.name = "fashion",
     .has_folder = true,
     .sign = "FashionMNIST",
     .is_grey = true,
     .image_shape = grey_shape,
     .open = open_small<data::fashion_mnist>,
     .own_size = data::idx_side},
}};

/// The source that a text names, and its folder; null if the text names no source.
std::pair<const DataSource*, std::string_view> source_of(std::string_view text) {
  for (const auto& source : kSources) {
    if (!text.starts_with(source.name)) continue;
    const auto rest = text.substr(source.name.size());
    if (!source.has_folder && rest.empty()) return {&source, ""};
    if (source.has_folder && rest.size() > 1 && rest[0] == ':') return {&source, rest.substr(1)};
  }
  return {nullptr, ""};
}

std::vector<std::string_view> names_without_folder() {
  std::vector<std::string_view> names;
  for (const auto& source : kSources) {
    if (!source.has_folder) names.push_back(source.name);
  }
  return names;
}

/// "images:DIR|faces:DIR".
std::string forms_with_folder() {
  std::string forms;
  for (const auto& source : kSources) {
    if (source.has_folder) forms.append(forms.empty() ? "" : "|").append(source.name).append(":DIR");
  }
  return forms;
}

/// The source whose folder `text` seems to be. Null: it is no folder.
const DataSource* source_of_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return nullptr;
  const DataSource* found = nullptr;
  for (const auto& source : kSources) {
    if (!source.has_folder) continue;
    const bool is_told = !source.sign.empty() && std::filesystem::exists(folder / source.sign, ignored);
    if (is_told || (source.sign.empty() && found == nullptr)) found = &source;
  }
  return found;
}

/// Throws SettingsError for a folder without its source's name, which is likely to be meant.
std::optional<std::string> read_data_folder(std::string_view text) {
  if (source_of(text).first != nullptr) return std::string(text);
  const auto* source = source_of_folder(text);
  if (source == nullptr) return std::nullopt;
  throw SettingsError(
      "data is " + quote(text) + ", wanted " + settings::wanted(*settings::find_setting(schema(), "data")),
      "did you mean data=" + std::string(source->name) + ":" + printable(text) + "?");
}

std::optional<std::string> read_class_count(std::string_view text) {
  const auto count = settings::read_integer(text);
  if (!count || *count < 10 || *count > 93773) return std::nullopt;
  return std::to_string(*count);
}

/// Reads the numbers that a text lists, or those that it names. Empty: it does neither.
std::vector<double> read_channels(std::string_view text, std::vector<double> data::Normalization::*numbers) {
  for (const auto& [name, named] : named_normalizations()) {
    if (text == name) return named.*numbers;
  }
  std::vector<double> all;
  while (true) {
    const auto comma = text.find(',');
    const auto number = settings::read_number(text.substr(0, comma));
    if (!number) return {};
    all.push_back(*number);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return all.size() == 1 || all.size() == 3 ? all : std::vector<double>();
}

/// The normal form of a list of numbers: their name, if they have one.
std::optional<std::string> channels_text(const std::vector<double>& all,
                                         std::vector<double> data::Normalization::*numbers) {
  if (all.empty()) return std::nullopt;
  const bool is_one = std::ranges::all_of(all, [&](double one) { return one == all[0]; });
  const auto normal = is_one ? std::vector<double>{all[0]} : all;
  for (const auto& [name, named] : named_normalizations()) {
    if (normal == named.*numbers) return std::string(name);
  }
  return settings::format_value(normal);
}

std::optional<std::string> read_mean(std::string_view text) {
  return channels_text(read_channels(text, &data::Normalization::mean), &data::Normalization::mean);
}

std::optional<std::string> read_deviation(std::string_view text) {
  const auto all = read_channels(text, &data::Normalization::deviation);
  if (std::ranges::any_of(all, [](double one) { return one < kLeastDeviation; })) return std::nullopt;
  return channels_text(all, &data::Normalization::deviation);
}

/// After the sides of the images are known.
data::Preprocessing read_preprocessing(const settings::Settings& settings, const Job& job) {
  const auto [channels, height, width] = job.data.source->image_shape(job);
  data::Preprocessing all;
  all.form = {.height = height,
              .width = width,
              .orientation = chosen(kOrientations, settings.get_string("data.orientation")),
              .fit = chosen(kFits, settings.get_string("data.resize"))};
  if (job.data.source->is_grey) all.form.colours = data::Colours::grey;
  if (job.data.source->is_ink) all.form.colours = data::Colours::grey, all.form.inverted = true;
  all.normalization.mean = read_channels(settings.get_string("data.mean"), &data::Normalization::mean);
  all.normalization.deviation = read_channels(settings.get_string("data.std"), &data::Normalization::deviation);
  return all;
}

/// Rejects a number a channel where images have one.
void check_channels(const Job& job) {
  const auto shape = job.data.source->image_shape(job);
  const auto& [mean, deviation] = job.data.preprocessing.normalization;
  for (const auto& [key, count] : {std::pair("data.mean", mean.size()), {"data.std", deviation.size()}}) {
    if (count == 1 || count == static_cast<size_t>(shape[0])) continue;
    throw SettingsError(std::string(key) + " is " + job.settings.get_string(key) + " with images of one channel, " +
                        "wanted half, mnist, fashion or one number");
  }
}

void read_data(settings::Settings& settings, Job& job) {
  auto& data = job.data;
  const auto [source, folder] = source_of(settings.get_string("data"));
  data.source = source;
  data.folder = folder;
  if (source->own_size != nullptr && !settings.given("data.size")) {
    if (const auto size = source->own_size(data.folder)) settings.set("data.size", std::to_string(*size));
  }
  data.size = settings.get_int("data.size");
  data.hold_out = settings.get_int("data.hold_out");
  data.layout = chosen(kLayouts, settings.get_string("data.layout"));
  data.preprocessing = read_preprocessing(settings, job);
  data.glyphs.classes = settings.get_string("data.classes");
  data.glyphs.size = data.size;
  data.glyphs.train_fonts = settings.get_list("data.train_fonts");
  data.glyphs.test_fonts = settings.get_list("data.test_fonts");
  data.unseen = settings.get_int("data.unseen");
  data.augment.normalization = data.preprocessing.normalization;
  data.augment.random_crop = settings.get_float("data.random_crop");
  data.augment.affine = settings.get_float("data.affine");
  data.augment.shift = settings.get_float("data.shift");
  data.augment.crop_padding = settings.get_int("data.crop_padding");
  data.augment.flip = settings.get_float("data.flip");
  data.augment.blur = settings.get_float("data.blur");
  data.augment.noise = settings.get_float("data.noise");
  data.augment.cutout = settings.get_int("data.cutout");
  data.prefetch = static_cast<int>(settings.get_int("data.prefetch"));
  data.workers = static_cast<int>(settings.get_int("data.workers"));
  check_channels(job);
}

/// Keys that have come later than checkpoints which lack them: they count where they are not the default.
std::vector<std::string_view> identity_of_preprocessing(const Job& job) {
  std::vector<std::string_view> keys;
  for (const std::string_view key : {"data.resize", "data.mean", "data.std"}) {
    if (!job.settings.is_default(key) && !is_idle(job, key)) keys.push_back(key);
  }
  return keys;
}

void check_data(const Job& job) {
  const auto& source = *job.data.source;
  if (job.data.size >= source.least_size) return;
  throw SettingsError("data.size is " + std::to_string(job.data.size) + " with " + std::string(source.name) +
                      ", wanted " + std::to_string(source.least_size) + " or more: " + std::string(source.why_least));
}

/// Writes the fonts of this machine where the settings leave the choice to it.
void choose_fonts(Job& job) {
  if (!job.data.source->is_drawn) return;
  auto& glyphs = job.data.glyphs;
  glyphs = data::with_fonts(glyphs);
  for (const auto& [key, fonts] :
       {std::pair("data.train_fonts", glyphs.train_fonts), std::pair("data.test_fonts", glyphs.test_fonts)}) {
    if (job.settings.get_list(key).empty()) job.settings.set(key, settings::format_value(fonts));
  }
}

}  // namespace

namespace {

/// The training images that weights are not trained on become the test images.
data::Split for_search(data::Split split, const Job& job) {
  const double share = job.search->share;
  if (share < 1) {
    std::tie(split.train, split.test) = data::cut_in_two(std::move(split.train), share, job.seed);
    split.tests = "images of the alphas";
    split.summary += " · search on " + format_count(split.train->size()) + " for weights, " +
                     format_count(split.test->size()) + " for alphas";
  }
  const int64_t batch = job.training.batch, images = split.test ? split.test->size() : 0;
  if (images >= batch) return split;
  throw SettingsError("train.batch is " + std::to_string(batch) + " with " + std::to_string(images) +
                          " images for the alphas, wanted at most as many",
                      share < 1 ? "lower train.batch or search.share" : "lower train.batch, or search.share below 1");
}

}  // namespace

data::Split open_data(Job& job) {
  auto split = naming_settings({"data"}, [&] {
    choose_fonts(job);
    return job.data.source->open(job);
  });
  if (job.search) split = naming_settings({"search"}, [&] { return for_search(std::move(split), job); });
  split.summary = with_setting_names(split.summary, {"data"});
  return split;
}

const Section& data_section() {
  static const std::string forms = forms_with_folder();
  static const Section section = {
      .rows =
          {{.key = "data",
            .default_value = text("glyphs"),
            .doc = "training data: characters drawn from fonts, noise for benchmarks, a folder with one sub-folder of "
                   "images per class, InsightFace records, the folders of Market-1501, or the files of CIFAR and MNIST",
            .choices = names_without_folder(),
            .other = {forms, read_data_folder}},
           {.key = "data.classes",
            .default_value = text("gb2312"),
            .doc = "glyphs: characters to classify, either a named set or the first N characters",
            .choices = {"gb2312", "uro", "all"},
            .other = {"a whole number 10..93773", read_class_count}},
           {"data.size",
            int64_t{32},
            "image size in pixels; glyphs: at most 256; market1501: the height, which is twice the width; faces, "
            "cifar10, cifar100, mnist, fashion: defaults to that of the stored images",
            {8, 1024}},
           {"data.train_fonts", std::vector<std::string>(),
            "glyphs: fonts to train on; empty: all installed standard fonts that are not held out"},
           {"data.test_fonts", std::vector<std::string>(),
            "glyphs: fonts held out for the test; empty: ukai, zenhei and noto-serif, if installed"},
           {"data.random_crop", 0.0,
            "augmentation: a random part of each picture, of at least this share of its area, is stretched to the "
            "whole; "
            "0: the whole picture",
            kFraction},
           {"data.affine", 0.08, "augmentation: standard deviation of the entries of a random affine map", {0, 0.3}},
           {"data.shift", 0.06, "augmentation: largest random shift, as a fraction of the image size", kFraction},
           {"data.crop_padding",
            int64_t{0},
            "augmentation: pixels of background put around an image, out of which a part of its size is cut anywhere; "
            "CIFAR's recipe: 4",
            {0, 1024}},
           {"data.flip", 0.0, "augmentation: probability that an image is mirrored, left for right", kFraction},
           {"data.blur", 0.0, "augmentation: probability that an image is blurred", kFraction},
           {"data.noise", 0.0,
            "augmentation: standard deviation of the pixel noise, where 1 is the difference of black and white",
            kFraction},
           {"data.cutout",
            int64_t{0},
            "augmentation: side in pixels of a square at a random place, cut at the edges, that is set to 0, the mean; "
            "CIFAR's recipe: 16",
            {0, 1024}},
           {"data.hold_out",
            int64_t{5},
            "N moves every Nth image of each class to the test set, unless images come with a test folder; faces: 0 "
            "leaves the test set out",
            {0, 1e9}},
           {.key = "data.layout",
            .default_value = text("auto"),
            .doc = "images: what the folder's sub-folders are; split: a training set, train, and perhaps a test set, "
                   "test or val; flat: the classes, whatever their names; auto: told from what they hold",
            .choices = names_of(kLayouts)},
           {.key = "data.orientation",
            .default_value = text("exif"),
            .doc = "images, faces, market1501 and pairs: which way up pictures are; exif: as their EXIF tag says; "
                   "stored: as their rows are stored",
            .choices = names_of(kOrientations)},
           {.key = "data.resize",
            .default_value = text("stretch"),
            .doc = "images, faces, market1501 and pairs: how pictures come to their size; stretch: each side by "
                   "itself; crop: the aspect is kept, and the middle cut out",
            .choices = names_of(kFits)},
           {.key = "data.mean",
            .default_value = text("half"),
            .doc = "value = (byte / 255 - data.mean) / data.std; half: 0.5; the others: of these sets",
            .choices = names_of_normalizations(),
            .other = {"one number or three with a comma between them: red, green, blue", read_mean}},
           {.key = "data.std",
            .default_value = text("half"),
            .doc = "the deviation by which values are divided; half: 0.5; the others: of these sets",
            .choices = names_of_normalizations(),
            .other = {"one number of 1e-6 or more, or three with a comma between them", read_deviation}},
           {"data.unseen", int64_t{0},
            "glyphs: keep this many characters out of training, and test retrieval on them afterwards: one held-out "
            "font draws the queries, all other fonts the gallery",
            kCount},
           {"data.prefetch", int64_t{2}, "batches prepared in advance, per rank", {0, 1024}},
           {"data.workers",
            int64_t{0},
            "threads of each rank that prepare batches; 0: one, and with device=cuda as many as compute",
            {0, 1024}}},
      .read = read_data,
      .check = check_data,
      .idle = {{{"data.classes", "data.train_fonts", "data.test_fonts", "data.unseen"},
                [](const Job& job) { return !job.data.source->is_drawn; },
                "except with data=glyphs"},
               {{"data.hold_out"},
                [](const Job& job) { return !job.data.source->has_hold_out; },
                "except with data=images:DIR and data=faces:DIR"},
               {{"data.layout"},
                [](const Job& job) { return !job.data.source->has_layout; },
                "except with data=images:DIR"},
               {{"data.orientation", "data.resize"},
                [](const Job& job) { return !job.data.source->has_pictures && job.evaluation.pairs.empty(); },
                "without image files"}},
      .identity = {"data", "data.classes", "data.train_fonts", "data.size", "data.orientation"},
      .more_identity = identity_of_preprocessing,
      .in_use = {"data.prefetch", "data.workers"},
      .in_use_on_data = {"data", "data.hold_out", "data.layout", "data.test_fonts"}};
  return section;
}

}  // namespace tandem::job
