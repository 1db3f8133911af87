#pragma once
#include "tandem/models/cells/bench_201_chain.h"
#include "tandem/models/space.h"

namespace tandem::models {

/// The network of NAS-Bench-201 with all its cells in it: each edge is a mixture of operations (search_method.h). The
/// parameters alphas.<...> and the weights that come of them are as in Supernet. Norms in cells have no weights of
/// their own. Source: Dong and Yang 2020, NAS-Bench-201 (arXiv:2001.00326), section 4; its code.
class Bench201Supernet : public Bench201Chain {
 public:
  /// `space`: of bench_201_skeleton(). Throws as Bench201Chain() and checked_method().
  Bench201Supernet(const Space& space, const ModelOptions& options);
};

}  // namespace tandem::models
