#include "tandem/memory/detail/generator_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <algorithm>
#include <mutex>

namespace tandem::memory::detail {

struct GeneratorState::Cpu {
  explicit Cpu(at::CPUGeneratorImpl& generator)
      : engine(generator.engine().data()),
        next_float(generator.next_float_normal_sample()),
        next_double(generator.next_double_normal_sample()) {}

  bool operator==(const Cpu& other) const {
    // `left` and `next` move with each number, `state` when they start over.
    return engine.left_ == other.engine.left_ && engine.next_ == other.engine.next_ &&
           engine.state_ == other.engine.state_ && next_float == other.next_float && next_double == other.next_double;
  }

  at::mt19937_data_pod engine;
  std::optional<float> next_float;
  std::optional<double> next_double;
};

namespace {

at::CPUGeneratorImpl* as_cpu(const at::Generator& generator) {
  return generator.device().is_cpu() ? dynamic_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl())
                                     : nullptr;
}

}  // namespace

GeneratorState::GeneratorState(at::Generator generator) : generator_(std::move(generator)) {
  const std::lock_guard lock(generator_.mutex());
  if (auto* cpu = as_cpu(generator_)) {
    cpu_ = std::make_shared<const Cpu>(*cpu);
  } else {
    other_ = generator_.get_state();
  }
}

void GeneratorState::restore() const {
  auto generator = generator_;
  const std::lock_guard lock(generator.mutex());
  if (!cpu_) return generator.set_state(other_);
  auto* cpu = as_cpu(generator);
  at::mt19937 engine;
  engine.set_data(cpu_->engine);
  cpu->set_engine(engine);
  cpu->set_next_float_normal_sample(cpu_->next_float);
  cpu->set_next_double_normal_sample(cpu_->next_double);
}

bool GeneratorState::has_moved() const {
  auto generator = generator_;
  const std::lock_guard lock(generator.mutex());
  if (auto* cpu = as_cpu(generator)) return !(Cpu(*cpu) == *cpu_);
  return !generator.get_state().equal(other_);
}

bool GeneratorState::is_default_of_cpu() const { return generator_ == at::detail::getDefaultCPUGenerator(); }

std::vector<at::Generator> default_generators(const std::vector<Tensor>& inputs) {
  std::vector<at::Generator> generators = {at::detail::getDefaultCPUGenerator()};
  for (const auto& input : inputs) {
    if (!input.defined() || !input.is_cuda()) continue;
    const auto& generator = at::globalContext().defaultGenerator(input.device());
    if (std::ranges::find(generators, generator) == generators.end()) generators.push_back(generator);
  }
  return generators;
}

GeneratorScope::GeneratorScope(const std::vector<GeneratorState>& states) {
  for (const auto& state : states) before_.emplace_back(state.generator());
  for (const auto& state : states) state.restore();
}

GeneratorScope::~GeneratorScope() {
  for (const auto& state : before_) state.restore();
}

}  // namespace tandem::memory::detail
