#pragma once
#include <string>

#include "tandem/models/backbone.h"
#include "tests/support/python.h"

namespace tandem::models::test_oracle {

/// Gives `model` the weights that an oracle saved as NAME/state.KEY, and expects its outputs in training and in
/// evaluation and its gradients to be the oracle's, in float64: NAME/images, train, upstream, grad.KEY (each so manieth
/// entry), eval. Names and shapes of all parameters and buffers must be equal.
void expect_equal(Backbone& model, const test::OracleAnswer& oracle, const std::string& name);

}  // namespace tandem::models::test_oracle
