#include "tandem/cli/command.h"

namespace tandem::cli {
namespace {

const Flag kJson{"--json", "FILE", "write the result as JSON; - for stdout", true};
const Flag kConfig{"--config", "FILE", "read settings from a TOML file"};

/// A subcommand that works on a job's settings.
Command on_settings(std::string_view name, std::string_view doc, int (*run)(const Arguments&)) {
  return {name, doc, "key=value...", run, {kConfig, kJson}};
}

const std::vector<Command>& table() {
  static const std::vector<Command> table = {
      on_settings("train", "train a class-sharded classifier", run_train),
      {"search",
       "search the cells of a network, which train then takes as model=genotype:FILE",
       "key=value...",
       run_search,
       {kConfig, kJson},
       false,
       search_schema()},
      {"eval",
       "test a trained model on the images held out of training, or on others: data=images:FOLDER",
       "RUN [key=value...]",
       run_eval,
       {kJson, {"--page", "FILE", "draw what is taken for what, and the worst images, as an HTML page", true}},
       false,
       eval_schema()},
      {"predict",
       "say of images which classes a trained model takes them for",
       "RUN IMAGE|FOLDER... [key=value...]",
       run_predict,
       {kJson, {"--csv", "FILE", "write a row an image and class; - for stdout", true}},
       false,
       predict_schema()},
      {"embed",
       "write the features that a trained model makes of images",
       "RUN out=FILE [IMAGE|FOLDER...] [key=value...]",
       run_embed,
       {kJson},
       false,
       embed_schema()},
      {"plan",
       "predict the memory of each rank in a training step, without training",
       "key=value...",
       run_plan,
       {kConfig,
        kJson,
        {"--figure", "FILE", "draw the memory of each form of the head as SVG, or with parallel=auto the plans",
         true}}},
      {"memory",
       "measure one training step: who holds which bytes, by category, by block and over time",
       "key=value...",
       run_memory,
       {kConfig,
        kJson,
        {"--page", "FILE", "draw the step as an HTML page", true},
        {"--snapshot", "FILE", "with device=cuda: write what pytorch.org/memory_viz opens", true},
        {"--compare", "", "measure nothing: compare two results of --json, A.json B.json"}}},
      {"reshard",
       "rewrite a checkpoint for another number of ranks, or merge it into one file of weights",
       "RUN [key=value...]",
       run_reshard,
       {kJson},
       false,
       reshard_schema()},
      {"diff",
       "find the first step and block at which two runs with trace.blocks part; status 1 if they do",
       "RUN RUN [tolerance=NUMBER]",
       run_diff,
       {kJson},
       false,
       diff_schema()},
      {"launch",
       "run a command on several ranks of this machine, or of several, with a launch on each",
       "[--] COMMAND...",
       run_launch,
       {{"-n", "N", "number of ranks on this machine"},
        {"--grace", "SECONDS", "time from SIGTERM to SIGKILL after a rank has failed (default 5)"},
        {"--nodes", "N", "number of machines of the job"},
        {"--node", "I", "which of them this is, from 0"},
        {"--meet", "HOST:PORT", "where the ranks of several machines meet: an address of node 0"}},
       true},
      {"bench",
       "measure a part of tandem: comm, classifier, activation, memory (of one step), recompute, parity (of plans with "
       "one device), ddp (strategies beside Python's), tensor (divided layers beside DTensor), pipeline (schedules "
       "beside torch.distributed.pipelining), plans (that parallel=auto puts first), search (a step of DARTS beside "
       "Python's), step (of one job, while others take turns); tandem help bench NAME lists its settings",
       "NAME [key=value...]",
       run_bench,
       {kJson}},
      {"doctor",
       "read a failed run's flight records and name the rank that the other ranks waited for",
       "DIR",
       run_doctor,
       {kJson}},
      {"info",
       "show versions, cores, memory and devices; with settings, the blocks of the model and what they take",
       "[key=value...]",
       run_info,
       {kConfig, kJson}},
  };
  return table;
}

}  // namespace

std::span<const Command> commands() { return table(); }

const Command* find_command(std::string_view name) {
  for (const auto& command : commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

}  // namespace tandem::cli
