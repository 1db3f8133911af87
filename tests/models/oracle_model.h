#pragma once
#include <string>
#include <vector>

#include "tandem/models/backbone.h"
#include "tests/support/python.h"

namespace tandem::models::test_oracle {

/// Gives `model` the weights that an oracle saved as NAME/state.KEY, and makes it one of float64. Names and shapes of
/// all parameters and buffers must be equal.
void give_weights(Backbone& model, const test::OracleAnswer& oracle, const std::string& name);

/// Adds `distance` to one weight of the parameter `key`: that with the greatest gradient of those that the oracle
/// saved.
void move_weight(Backbone& model, const test::OracleAnswer& oracle, const std::string& name, const std::string& key,
                 double distance);

/// Which outputs and gradients of a model with the oracle's weights are not the oracle's, up to 1e-11 of the largest
/// entry (of 0.01, where that is smaller): NAME/train (output in training), grad.KEY (of the sum of train * upstream,
/// each so manieth entry), eval (output in evaluation).
std::vector<std::string> differences(Backbone& model, const test::OracleAnswer& oracle, const std::string& name);

/// Gives the weights, and expects no differences.
void expect_equal(Backbone& model, const test::OracleAnswer& oracle, const std::string& name);

}  // namespace tandem::models::test_oracle
