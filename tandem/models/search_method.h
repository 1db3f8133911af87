#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/tensor.h"

namespace tandem::models {

class Mixture;
struct CellLayerOptions;
struct Space;

/// What a search has learned of one kind of cell, and where it stands.
struct Alphas {
  Tensor operations;    // [edges, operations]
  Tensor edges;         // [edges]; undefined unless the method weighs edges
  int64_t inputs = 0;   // of a cell: of its nodes' edges
  uint64_t stream = 0;  // of random numbers: another one a kind of cell
  double progress = 0;  // share of the search that is done
  bool is_training = true;
};

/// What an edge's mixture is made of.
struct MixtureOptions {
  std::vector<std::string_view> operations;
  int64_t partial = 4;  // of so many channels one goes through the operations, with methods that leave some out
};

/// A way to search: how an edge is made of its operations, and what the alphas make of it.
///
///   alphas ── weights() ──▶ [edges, columns] ──▶ mixture of each edge, times its row
///     └────── shares() ───▶ [edges, operations] ──▶ derive() (space.h)
struct SearchMethod {
  std::string_view name;
  std::string_view doc;         // for the settings' table
  bool weighs_edges = false;    // there are alphas of edges, too
  bool is_partial = false;      // MixtureOptions::partial counts
  bool keeps_progress = false;  // weights() depends on the progress outside of training too
  bool leaves_out = false;      // a step gives some operations' parameters no gradient
  Tensor (*weights)(const Alphas& alphas) = nullptr;
  Tensor (*shares)(const Alphas& alphas) = nullptr;
  std::shared_ptr<Mixture> (*make_mixture)(const MixtureOptions& mixture, const CellLayerOptions& layers) = nullptr;
};

/// darts: Liu, Simonyan, Yang 2019 (arXiv:1806.09055): softmax over an edge's operations.
/// pc-darts: Xu et al. 2020 (arXiv:1907.05737): a part of the channels goes through the operations, the others by them;
/// then channels are shuffled; a node's edges are weighed by a softmax.
/// darts-minus: Chu et al. 2021, DARTS- (arXiv:2009.01027): a skip connection besides, whose weight falls from 1 to 0.
/// gdas: Dong and Yang 2019 (arXiv:1910.04465): in each step one operation of each edge, drawn by Gumbel-softmax of a
/// temperature that falls from 10 to 0.1; the others cost nothing.
/// The first is the default.
std::span<const SearchMethod> search_methods();

/// Throws SettingsError (unknown name), naming `method`.
const SearchMethod& search_method(std::string_view name);

/// The share of each operation (SearchMethod::shares()), one tensor a kind of cell. `alphas`: a module's parameters in
/// their order. Throws c10::ValueError for another number of them.
std::vector<Tensor> shares_of(const Space& space, const SearchMethod& method, const std::vector<Tensor>& alphas);

}  // namespace tandem::models
