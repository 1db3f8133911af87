#include <ATen/ATen.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "tandem/base/error.h"
#include "tandem/comm/world.h"
#include "tests/comm/operator_cases.h"

// operator_rank adjoints      one process of a job: the adjoint identity of all operators; says what is wrong
// operator_rank derivatives   reads lines of JSON and answers each: an operator's value and derivatives on threads
namespace {

using namespace tandem;
using nlohmann::json;

int check_adjoints() {
  comm::WorldOptions options;
  options.init_timeout = options.timeout = std::chrono::seconds(60);
  const auto group = comm::join_world(rendezvous::detect_launch(), options);
  const auto faults = test::adjoint_faults(*group);
  std::fputs(faults.c_str(), stderr);
  return faults.empty() ? 0 : 1;
}

const test::OperatorCase& case_named(const std::string& name) {
  for (const auto& one : test::operator_cases()) {
    if (one.name == name) return one;
  }
  throw DataError("no operator is called '" + name + "'");
}

json cases() {
  auto list = json::array();
  for (const auto& one : test::operator_cases()) list.push_back({{"name", one.name}, {"has_root", one.has_root}});
  return list;
}

Tensor tensor_of(const json& numbers, const Tensor& like) {
  return at::tensor(numbers.get<std::vector<double>>(), at::kDouble).reshape(like.sizes());
}

json numbers_of(const Tensor& x) {
  const auto flat = x.contiguous();
  return std::vector<double>(flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel());
}

/// `x`, and where given `g` and `h`, hold a list of numbers for each rank; without them they are zero.
json answer(const json& question) {
  const auto& one = case_named(question.at("operator"));
  const int size = question.at("ranks"), root = question.at("root");
  const int64_t rows = question.at("rows");
  std::vector<json> values(size), gradients(size), by_x(size), by_g(size);
  comm::run_ranks(size, [&](comm::ProcessGroup& group) {
    const int rank = group.rank();
    auto x = test::input_of(one, rows, rank, size);
    if (question.contains("x")) x = tensor_of(question["x"].at(rank), x);
    const auto value = one.apply(x, group, root);
    const auto g = question.contains("g") ? tensor_of(question["g"].at(rank), value) : at::zeros_like(value);
    const auto h = question.contains("h") ? tensor_of(question["h"].at(rank), x) : at::zeros_like(x);
    const auto all = test::derivatives_of(one, x, g, h, group, root);
    values[rank] = numbers_of(all.value);
    gradients[rank] = numbers_of(all.gradient);
    by_x[rank] = numbers_of(all.by_x);
    by_g[rank] = numbers_of(all.by_g);
  });
  return {{"value", values}, {"gradient", gradients}, {"by_x", by_x}, {"by_g", by_g}};
}

int answer_questions() {
  std::cout << cases() << std::endl;
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(json::parse(line)) << std::endl;
  return 0;
}

}  // namespace

int main(int, char** words) {
  try {
    return std::string(words[1]) == "adjoints" ? check_adjoints() : answer_questions();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", message_of(error).c_str());
    return 1;
  }
}
