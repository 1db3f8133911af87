#include <algorithm>
#include <cstdio>

#include "tandem/comm/run_main.h"
#include "tests/train/faulty_training.h"

// One process of a training that goes wrong: faulty_training_rank FOLDER FORM PLACE KIND RANK. Prints the loss.
int main(int, char** words) {
  using namespace tandem;
  return comm::run_main([&] {
    const auto forms = train::faulty_forms();
    const auto& form = *std::ranges::find(forms, words[2], &train::FaultyForm::name);
    const train::TrainingFault fault = {words[3], words[4], std::stoi(words[5])};
    const auto options = train::faulty_world_options(fault, form, words[1]);
    const auto group = comm::join_world(rendezvous::detect_launch(), options);
    comm::run_recorded(*group, [&](comm::ProcessGroup&) {
      std::printf("%.17g\n", train::train_with_fault(form, fault, words[1], *group).loss);
    });
  });
}
