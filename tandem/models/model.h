#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/parallel/placement.h"

namespace tandem::comm {
class ProcessGroup;
}

namespace tandem::memory {
class StatisticsExchange;
}

namespace tandem::models {

class Backbone;

/// The normalisation after each convolution. `batch` is torchvision's; `group` (16 channels a group) and `none` treat
/// each image on its own, so that splitting a batch over ranks does not change the result. abn_* are batch
/// normalisation and an invertible activation in one operation in place (memory/inplace_abn.h): it stands for the
/// activation of the whole model, and keeps about half as many bytes for backward. `sync` is `batch` with the
/// statistics of the images of all ranks (ModelOptions::ranks). `ghost` is `batch` on ModelOptions::ghost images of
/// this rank at a time. Weights and their names are those of `batch`.
enum class Norm { batch, group, none, abn_leaky, abn_elu, abn_swish, sync, ghost };

/// True for the in-place norms: ModelOptions::activation has no effect with them.
bool has_own_activation(Norm norm);

/// True for norms whose statistics are of the images of several ranks: they read ModelOptions::ranks.
bool shares_statistics(Norm norm);

/// Throws SettingsError, naming `norm`.
Norm norm_of(std::string_view name);

/// In the order of Norm.
std::span<const std::string_view> norm_names();

/// How a network of cells begins: for small images, or for large ones, which it first makes an eighth as high and wide.
enum class Stem : uint8_t { cifar, imagenet };

/// Blocks of a model's chain, by their numbers in it. The first may lack its first parts (memory::Block::parts), and
/// the last its last ones.
struct BlockRange {
  int64_t first = 0, last = 0;
  int64_t first_part = 0, last_part = std::numeric_limits<int64_t>::max();  // of `first`, and of `last`

  bool holds(int64_t block) const { return first <= block && block <= last; }
  bool holds(int64_t block, int64_t part) const {
    return holds(block) && (block > first || part >= first_part) && (block < last || part <= last_part);
  }
  bool operator==(const BlockRange&) const = default;
};

struct ModelOptions {
  std::string name;      // one of model_names(), or a genotype or a cell (genotype.h), whose network is made
  int64_t channels = 1;  // of the images
  int64_t size = 32;     // height of the images; mlp and resnet_glyph depend on it
  int64_t width = 0;     // of the images; 0: equal to the height
  int64_t columns() const { return width > 0 ? width : size; }
  int64_t embedding = 128;  // width of the output; 0: the output is the pooled features
  Norm norm = Norm::batch;
  int64_t ghost = 32;               // Norm::ghost: images that share statistics; the last of a batch may be fewer
  bool zero_gamma = false;          // the last norm of a residual block starts at 0: the block starts as its shortcut
  std::string activation = "relu";  // one of memory::activation_names()
  int64_t cells = 20;               // of a network of cells, and the channels of its first ones
  int64_t cell_channels = 36;
  Stem stem = Stem::cifar;
  bool has_auxiliary = false;           // of a network of cells: while it is trained it gives auxiliary features, too
  double drop_path = 0;                 // of a network of cells: the rate by the end of training, see DropPath
  int64_t patch = 16;                   // of a vision transformer: pixels a side that make a token
  int64_t heads = 0;                    // of a vision transformer; 0: as it was published
  std::string search_method = "darts";  // of a search: one of search_methods() (search_method.h)
  int64_t search_partial = 4;           // MixtureOptions::partial
  double dropout = 0;                   // before the embedding, in mlp after each activation
  std::optional<at::ScalarType> products = {};  // what convolutions and linear layers round their input and weights to
  std::shared_ptr<memory::StatisticsExchange> ranks = {};  // of Norm::sync; null: this rank is alone
  bool divides_tokens = false;           // of a vision transformer, over the ranks of tensor: also between its layers
  comm::ProcessGroup* tensor = nullptr;  // over whose ranks the layers are divided; null: they are whole
  std::vector<BlockRange> blocks = {};   // that are built, with the weights that they have in the whole; empty: all
  uint64_t seed = 1;
};

/// True for a model that returns the pixels unchanged. Throws SettingsError (unknown name).
bool is_identity(std::string_view name);

/// The axes of a mesh, besides those of a batch, along which several ranks can divide the model's work; a model that
/// passes its input through can stand along tensor. Throws SettingsError (unknown name).
parallel::Axes axes_of(std::string_view name);

/// True for a model of cells, which is named after a genotype or by its text, or is that of a search.
bool has_cells(std::string_view name);

/// True for a model that is the network of NAS-Bench-201: one of its cells (parse_bench_201()), or all in a search.
bool is_bench_201(std::string_view name);

/// True for the model of a search over a space (space.h), "search:darts", whose parameters "alphas.<...>" stand for an
/// architecture.
bool is_supernet(std::string_view name);

/// True for a model on which `norm` has an effect. Throws SettingsError (unknown name).
bool has_norms(std::string_view name);

/// True for a vision transformer, whose images are cut into patches.
bool has_patches(std::string_view name);

/// resnet_glyph, resnet18, resnet34, resnet50, vit_tiny, vit_small, vit_base, mlp, none, and genotype_names().
std::span<const std::string_view> model_names();

/// The width of the model's output.
int64_t dim_of(const ModelOptions& options);

/// Builds a float32 model on the CPU, in training mode. Its weights depend on `seed` and their names alone: with the
/// same options every rank gets the same bits. Several threads may build at once; no number is drawn from torch's
/// default generator. A group of options.tensor must outlive the model, and its ranks run it together; layers::placed.h
/// tells which part of the whole model's weights a rank has. Include tandem/models/backbone.h to use the model.
/// Throws SettingsError (unknown name, an option out of range; blocks that the model does not have; a layer that is not
/// divided, or not over so many ranks).
std::shared_ptr<Backbone> make(const ModelOptions& options);

}  // namespace tandem::models
