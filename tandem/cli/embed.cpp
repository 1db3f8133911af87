#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "tandem/base/context.h"
#include "tandem/base/error.h"
#include "tandem/base/format.h"
#include "tandem/base/log.h"
#include "tandem/base/quote.h"
#include "tandem/cli/result.h"
#include "tandem/cli/run/folder.h"
#include "tandem/cli/use.h"
#include "tandem/comm/collectives.h"
#include "tandem/data/image_list.h"
#include "tandem/job/image_answers.h"
#include "tandem/job/odd_images.h"
#include "tandem/job/ranks.h"
#include "tandem/memory/meter.h"
#include "tandem/storage/named_file.h"
#include "tandem/storage/npy_file.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

const std::vector<settings::Setting>& embed_settings() {
  static const auto rows = use_settings(
      true,
      {{"out", std::string(), "new file of the features: FILE.safetensors, or FILE.npy with FILE.csv beside it"}});
  return rows;
}

/// The images, whose labels mean something if they come from data, not from a list of paths.
struct Images {
  data::Split split;
  std::unique_ptr<data::Dataset> list;

  const data::Dataset& all() const { return list ? *list : *split.test; }
  bool has_labels() const { return list == nullptr; }
};

/// A pass over all images, which all ranks make together. Rank 0 gets the features of each batch, and keeps the labels.
class Pass {
 public:
  using Take = std::function<void(const Tensor& features)>;

  Pass(const Use& use, const Images& images, const job::TrainedTask& opened)
      : use_(use), images_(images), opened_(opened) {}

  void run(const Take& take) {
    const at::NoGradGuard no_grad;
    const CategoryScope scope(Category::activations);
    auto& group = opened_.mesh->batch();
    const auto use = [&](const data::Batch& batch, const Tensor& own, std::span<const int64_t> sizes) {
      const auto features = comm::gather(own.to(at::kFloat), 0, group, 0, sizes);
      labels_.push_back(comm::gather(batch.labels, 0, group, 0, sizes));
      if (take) take(features);
    };
    embed(use_.job, *opened_.task, images_.all(), *opened_.mesh, use);
  }

  Tensor labels() const { return at::cat(labels_); }

 private:
  const Use& use_;
  const Images& images_;
  const job::TrainedTask& opened_;
  std::vector<Tensor> labels_;
};

/// The JSON of a list of texts as a tensor of bytes.
Tensor bytes_of(const std::vector<std::string>& texts) {
  const auto text = nlohmann::json(texts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const auto bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::ranges::copy(text, static_cast<char*>(bytes.mutable_data_ptr()));
  return bytes;
}

storage::TensorSource source_of(const std::string& name, const Tensor& tensor) {
  return {name, tensor.scalar_type(), tensor.sizes().vec(), [tensor](const auto& take) { take(tensor); }};
}

/// The order of a file's tensors puts int32 behind float32: labels are known when the features have passed.
void write_tensors(const fs::path& file, const storage::TensorSource& features, const Images& images, const Pass& pass,
                   const ClassNames& names) {
  std::vector<std::string> paths;
  for (int64_t i = 0; i < images.all().size(); ++i) paths.push_back(images.all().sample_name(i));
  std::vector<storage::TensorSource> sources = {features, source_of("paths", bytes_of(paths))};
  if (images.has_labels()) {
    sources.push_back(
        {"labels", at::kInt, {images.all().size()}, [&](const auto& take) { take(pass.labels().to(at::kInt)); }});
    sources.push_back(source_of("class_names", bytes_of(names.all())));
  }
  storage::write_safetensors(file, std::span<const storage::TensorSource>(sources));
}

/// One row an image: its path and, with labels, the number and the name of its class.
std::string csv_of(const Images& images, const Pass& pass, const ClassNames& names) {
  std::string text = images.has_labels() ? "path,label,name\r\n" : "path\r\n";
  const auto labels = pass.labels();
  const auto* label = labels.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < images.all().size(); ++i) {
    text += csv_cell(images.all().sample_name(i));
    if (images.has_labels()) text += "," + std::to_string(label[i]) + "," + csv_cell(names(label[i]));
    text += "\r\n";
  }
  return text;
}

fs::path table_of(fs::path features) { return features.replace_extension(".csv"); }

void write_features(const fs::path& file, const Images& images, int64_t dim, Pass& pass, const ClassNames& names) {
  const storage::TensorSource features = {
      "features", at::kFloat, {images.all().size(), dim}, [&](const auto& take) { pass.run(take); }};
  storage::write_named_file("out file", file, [&](const fs::path& unfinished) {
    if (file.extension() != ".npy") return write_tensors(unfinished, features, images, pass, names);
    storage::write_npy(unfinished, features);
    storage::write_named_file("CSV file", table_of(file), csv_of(images, pass, names));
  });
}

void embed_rank(const Arguments& arguments, const Use& use, const Images& images, const ClassNames& names,
                comm::ProcessGroup& group) {
  const auto opened = open_trained(use.model, use.job, use.model.known().shape, {}, group);
  const auto dim = use.job.model.features;
  const fs::path file = use.settings.get_string("out");
  Pass pass(use, images, opened);
  group.rank() == 0 ? write_features(file, images, dim, pass, names) : pass.run({});
  if (const auto line = job::odd_images({&images.all()}, group)) log::warn(*line);
  if (group.rank() != 0) return;
  const auto count = images.all().size();
  write_result(arguments,
               "features " + format_count(count) + " x " + std::to_string(dim) + " in " + file.string() +
                   (file.extension() == ".npy" ? ", their paths in " + table_of(file).string() : "") + "\n",
               {{"count", count},
                {"dim", dim},
                {"file", file.string()},
                {"model", opened.from.file},
                {"steps", opened.from.step}});
}

void check_out(const fs::path& file) {
  const bool is_known = file.extension() == ".safetensors" || file.extension() == ".npy";
  if (!is_known) {
    throw SettingsError("out is " + quote(file.string()) + ", wanted FILE.safetensors or FILE.npy",
                        file.empty() ? "give out=features.npy, for example" : "");
  }
  storage::check_named_file("out file", file);
}

Images open_images(Use& use) {
  const auto& form = use.model.known().preprocessing.form;
  if (!use.paths.empty() && use.settings.given("data")) {
    throw SettingsError("data is given, and so are images by their paths, wanted one of both");
  }
  if (!use.paths.empty()) return {.split = {}, .list = data::image_list(use.paths, form)};
  Images images{.split = open_test_data(use.model, use.job, /*takes_others=*/true), .list = nullptr};
  if (!images.split.test || images.split.test->size() == 0) {
    throw DataError("the test set is empty, wanted at least one image", "name images or folders of images");
  }
  return images;
}

}  // namespace

settings::Schema embed_schema() { return embed_settings(); }

int run_embed(const Arguments& arguments) {
  memory::install_meter();
  auto use = read_use("embed", arguments, embed_settings());
  check_out(use.settings.get_string("out"));
  const auto images = open_images(use);
  const auto names = images.split.has_other_classes ? ClassNames(*images.split.test) : ClassNames(use.model);
  if (job::prints_for_the_job()) log::info(images.list ? images.list->describe() : images.split.summary);
  job::on_ranks(use.job, [&](comm::ProcessGroup& group) { embed_rank(arguments, use, images, names, group); });
  return 0;
}

}  // namespace tandem::cli
