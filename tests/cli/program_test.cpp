#include "tandem/cli/program.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tandem/base/cpu.h"
#include "tandem/base/error.h"
#include "tandem/cli/result.h"
#include "tandem/cli/stop_signals.h"
#include "tests/cli/run_command.h"
#include "tests/storage/disk_limit.h"
#include "tests/support/files.h"

namespace tandem::cli {
namespace {

using test::run_here;
using test::run_tandem;

TEST(Program, HelpGoesToStdout) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"help"}, {"--help"}, {"-h"}}) {
    const auto ended = run_here(words);
    EXPECT_EQ(ended.status, 0);
    EXPECT_EQ(ended.out, help_text());
    EXPECT_EQ(ended.err, "");
  }
  EXPECT_EQ(run_here({"info", "--help"}).out, help_text(*find_command("info")));
  EXPECT_EQ(run_here({"help", "launch"}).out, help_text(*find_command("launch")));
  const auto of_search = run_here({"help", "search"}).out;
  EXPECT_NE(of_search.find("\nmodel  search:darts\n"), std::string::npos);
  EXPECT_NE(of_search.find("\ntrain.batch  64\n"), std::string::npos);
  EXPECT_NE(run_here({"help", "settings"}).out.find("\ntrain.lr "), std::string::npos);
}

TEST(Program, HelpExplainsSettingsAndSections) {
  const auto rate = run_here({"help", "train.lr"}).out;
  EXPECT_TRUE(rate.starts_with("train.lr  0.3\n    ")) << rate;
  EXPECT_EQ(run_here({"help", "train", "train.lr"}).out, rate);
  EXPECT_EQ(run_here({"train", "help", "train.lr"}).out, rate);
  EXPECT_EQ(run_here({"train", "--help", "train.lr"}).out, rate);
  EXPECT_EQ(run_here({"train", "ranks=2", "--help"}).out, help_text(*find_command("train")));
  EXPECT_EQ(run_here({"train", "help"}).out, help_text(*find_command("train")));
  EXPECT_EQ(run_here({"reshard", "RUN", "--help"}).out, help_text(*find_command("reshard")));
  const auto section = run_here({"help", "train", "data"}).out;
  EXPECT_TRUE(section.starts_with("data  glyphs\n")) << section;
  EXPECT_NE(section.find("\ndata.hold_out  5\n"), section.npos) << section;
  EXPECT_EQ(section.find("\ntrain.lr"), section.npos) << section;
  EXPECT_EQ(run_here({"help", "data.name"}).out, section);
  EXPECT_TRUE(run_here({"help", "reshard", "merge"}).out.starts_with("merge  (empty)\n"));
}

TEST(Program, HelpKnowsTheSettingsOfBenchmarks) {
  const auto comm = run_here({"help", "bench", "comm"}).out;
  EXPECT_TRUE(
      comm.starts_with("Usage: tandem bench comm [key=value...]\n\nSettings (key, default, meaning):\nranks  4\n"))
      << comm;
  for (const std::string name : {"classifier", "activation", "memory", "recompute", "parity", "ddp", "step"}) {
    EXPECT_EQ(run_here({"help", "bench", name}).status, 0) << name;
  }
  EXPECT_TRUE(run_here({"help", "bench", "comm", "quick"}).out.starts_with("quick  false\n"));
  EXPECT_EQ(run_here({"help", "bench", "com"}).err,
            "error: help topic 'com' is no benchmark: tandem help bench lists them\n");
}

TEST(Program, HelpOfEvalHasItsOwnSettings) {
  const auto help = run_here({"help", "eval"}).out;
  EXPECT_NE(help.find("\neval.batch "), help.npos) << help;
  EXPECT_EQ(help.find("\ntrain.lr "), help.npos) << help;
  EXPECT_EQ(run_here({"help", "predict"}).out.find("\neval.pairs "), help.npos);
}

TEST(Program, UnknownHelpTopicsGetASuggestion) {
  const auto wrong = run_here({"help", "trian.lr"});
  EXPECT_EQ(wrong.status, 64);
  EXPECT_EQ(wrong.err,
            "error: help topic 'trian.lr' is unknown, wanted a subcommand, a setting or a section of settings: did you "
            "mean train.lr?\n");
  EXPECT_TRUE(run_here({"help", "trian"}).err.ends_with("did you mean train?\n"));
  EXPECT_EQ(run_here({"train", "help", "zzzzzz"}).err,
            "error: help topic 'zzzzzz' is unknown, wanted a setting or a section of settings: tandem help lists the "
            "subcommands, tandem help settings the settings\n");
}

TEST(Program, HelpFitsTheTerminal) {
  for (const char* columns : {"60", "100"}) {
    setenv("COLUMNS", columns, 1);
    for (const auto& words : std::vector<std::vector<std::string>>{{"help"}, {"help", "train"}, {"help", "launch"}}) {
      std::istringstream lines(run_here(words).out);
      for (std::string line; std::getline(lines, line);) {
        const bool is_wide = line.size() > std::stoul(columns);
        EXPECT_TRUE(!is_wide || line.find_first_not_of(' ') == 0 ||
                    line.find(' ', line.find_first_not_of(' ')) == line.npos)
            << line;
      }
    }
  }
  unsetenv("COLUMNS");
}

TEST(Program, FlagsAndSubcommandsInTheWrongPlace) {
  EXPECT_EQ(run_here({"info", "--train.batch=64"}).err,
            "error: flag '--train.batch' is unknown, wanted --help, --config or --json: settings have no dashes, write "
            "train.batch=...\n");
  EXPECT_EQ(run_here({"info", "--lr", "0.1"}).err,
            "error: flag '--lr' is unknown, wanted --help, --config or --json: settings have no dashes, did you mean "
            "diloco.lr, train.lr or search.lr?\n");
  EXPECT_TRUE(run_here({"info", "-c", "x"}).err.ends_with("did you mean --config?\n"));
  EXPECT_TRUE(run_here({"info", "--json x"}).err.ends_with("write the flag and its value as two words\n"));
  EXPECT_EQ(run_here({"info", "--json", "--config", "x"}).err, "error: flag --json has no value, wanted FILE\n");
  EXPECT_EQ(run_here({"info", "config=x"}).err,
            "error: argument 'config=x' is a flag without its dashes, wanted [key=value...]: write --config=x\n");
  EXPECT_TRUE(run_here({"info", "x.toml"}).err.ends_with("did you mean --config x.toml?\n"));
  EXPECT_EQ(run_here({"-v"}).err, "error: flag '-v' is unknown, wanted --help or --version\n");
  EXPECT_TRUE(run_here({"ranks=2", "train"}).err.ends_with("write the subcommand first: tandem train ranks=2\n"));
  EXPECT_TRUE(run_here({"--json", "x", "info"}).err.ends_with("write the subcommand first: tandem train --json\n"));
}

TEST(Program, AGpuThatIsNotThereIsAWrongSetting) {
  if (at::hasCUDA()) GTEST_SKIP() << "a GPU is here";
  const auto ended = run_here({"train", "device=cuda"});
  EXPECT_EQ(ended.status, 78);
  EXPECT_EQ(
      ended.err,
      "error: device is cuda, and this build has no kernels for GPUs, wanted cpu: leave device out, or use a build "
      "with TANDEM_CUDA=ON\n");
}

TEST(Program, NothingToDoIsAUsageError) {
  const auto ended = run_tandem({});
  EXPECT_EQ(ended.status, 64);
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(ended.err, help_text());
}

TEST(Program, Version) {
  EXPECT_EQ(run_tandem({"--version"}).out, "tandem " + version() + " (torch " + torch_version() + ")\n");
}

TEST(Program, InfoOfAModelListsItsBlocks) {
  const auto ended = run_tandem({"info", "model=mlp", "embedding=16", "train.batch=10", "data.size=16", "--json", "-"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto info = nlohmann::json::parse(ended.out);
  EXPECT_EQ(info["parameters"], 256 * 257 + 256 * 257 + 256 * 16 + 16);
  EXPECT_EQ(info["buffers"], 0);
  ASSERT_EQ(info["blocks"].size(), 3u);
  EXPECT_EQ(info["blocks"][1]["name"], "fc2");
  EXPECT_EQ(info["blocks"][1]["parameters"], 256 * 257);
  EXPECT_EQ(info["blocks"][1]["output_bytes"], 10 * 256 * 4);
  EXPECT_EQ(info["blocks"][2]["output_bytes"], 10 * 16 * 4);
  EXPECT_EQ(info["version"], version());
}

TEST(Program, UnknownWordsAreOneLineAnd64) {
  const auto command = run_tandem({"infos"});
  EXPECT_EQ(command.status, 64);
  EXPECT_EQ(command.out, "");
  EXPECT_TRUE(command.err.starts_with("error: subcommand 'infos' is unknown, wanted ")) << command.err;
  EXPECT_TRUE(command.err.ends_with(": did you mean info?\n")) << command.err;
  EXPECT_EQ(run_here({"info", "--jso=x"}).err,
            "error: flag '--jso' is unknown, wanted --help, --config or --json: did you mean --json?\n");
  EXPECT_TRUE(run_here({"--verbose"}).err.starts_with("error: flag '--verbose' is unknown, wanted "));
  EXPECT_EQ(run_here({"info", "rank=2"}).err,
            "error: setting 'rank' is unknown, wanted one of the settings: did you mean ranks?\n");
}

TEST(Info, TellsAboutTheMachine) {
  const auto text = run_here({"info"});
  EXPECT_EQ(text.status, 0);
  EXPECT_TRUE(text.out.starts_with("tandem    " + version() + "\n")) << text.out;
  const auto ended = run_tandem({"info", "--json", "-"});
  EXPECT_EQ(ended.status, 0);
  const auto info = nlohmann::json::parse(ended.out);  // nothing else stands on stdout
  EXPECT_EQ(info["version"], version());
  EXPECT_EQ(info["torch"], torch_version());
  EXPECT_GE(info["cores"], 1);
  EXPECT_GE(info["threads"], 1);
  EXPECT_GT(info["memory"]["total_bytes"], info["memory"]["available_bytes"]);
  EXPECT_TRUE(info["cuda"].is_boolean());
  EXPECT_TRUE(info["cpu_capability"].is_string());
  EXPECT_EQ(info["kernels"], cpu::name(cpu::chosen()));
}

TEST(Program, HelpNamesEachBench) {
  const auto wanted = run_tandem({"bench", "unknown"}).err, help = run_tandem({"bench", "--help"}).out;
  const auto begin = wanted.find("wanted ") + 7;
  std::istringstream names(wanted.substr(begin, wanted.find(':', begin) - begin));
  int count = 0;
  for (std::string name; names >> name;) {
    if (name == "or") continue;
    if (name.ends_with(',')) name.pop_back();
    EXPECT_NE(help.find(name), std::string::npos) << name;
    ++count;
  }
  EXPECT_GE(count, 8) << wanted;
}

TEST(Program, TrainAndLaunchHearStopSignals) {
  EXPECT_TRUE(hears_stop_signals("train"));
  EXPECT_TRUE(hears_stop_signals("search"));
  EXPECT_TRUE(hears_stop_signals("launch"));
  for (const auto name : {"plan", "eval", "bench", "doctor", "info", "--help", ""})
    EXPECT_FALSE(hears_stop_signals(name));
}

TEST(Result, GoesIntoTheFileAndTheTextToStdout) {
  const auto path = std::filesystem::temp_directory_path() / ("tandem_result_" + std::to_string(getpid()));
  const auto ended = run_tandem({"info", "--json", path.string()});
  EXPECT_TRUE(ended.out.starts_with("tandem ")) << ended.out;
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file)["version"], version());
  std::filesystem::remove(path);
}

TEST(Result, AFileThatCannotBeWrittenWholeIsRemoved) {
  const test::TemporaryFolder folder;
  Arguments arguments;
  arguments.flags["--json"] = (folder / "result.json").string();
  testing::internal::CaptureStdout();
  {
    const storage::DiskLimit full(1000);
    EXPECT_THROW(write_result(arguments, "", {{"text", std::string(5000, 'x')}}), IoError);
  }
  testing::internal::GetCapturedStdout();
  EXPECT_FALSE(std::filesystem::exists(folder / "result.json"));
}

TEST(Result, NamesFromOutsideSteerNoTerminal) {
  const auto out_of = [](const Arguments& arguments) {
    testing::internal::CaptureStdout();
    write_result(arguments, "report   \x1b]0;x\a/汉\nend\n", {{"run", "\x1b[2J\x7f\xc2\x9b汉"}});
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(out_of({}), "report   \\x1b]0;x\\x07/汉\nend\n");
  Arguments json;
  json.flags["--json"] = "-";
  EXPECT_EQ(out_of(json), "{\n  \"run\": \"\\u001b[2J\\u007f\\u009b汉\"\n}\n");
}

TEST(Program, NamesFromOutsideSteerNoTerminal) {
  const auto command = run_here({"\x1b[2J" + std::string(5000, 'x')});
  EXPECT_EQ(command.status, 64);
  EXPECT_TRUE(command.err.starts_with("error: subcommand '\\x1b[2Jxxx")) << command.err;
  EXPECT_LT(command.err.size(), 400U);
  const auto file = run_here({"train", "--config", "no\x1b[2J\n.toml"});
  EXPECT_EQ(file.status, 74);
  EXPECT_EQ(file.err, "error: settings file 'no\\x1b[2J\\x0a.toml' cannot be read: No such file or directory\n");
}

TEST(Result, PlacesThatCannotBeWritten) {
  const auto missing = run_here({"info", "--json", "/no/such/folder/x"});
  EXPECT_EQ(missing.status, 74);
  EXPECT_EQ(missing.out, "");
  EXPECT_EQ(missing.err,
            "error: --json file '/no/such/folder/x' cannot be written: No such file or directory; make its folder "
            "first\n");
  EXPECT_EQ(run_here({"info", "--json", "/"}).err, "error: --json file '/' cannot be written: it is a folder\n");
  EXPECT_EQ(run_here({"plan", "--figure", "one", "--json", "one"}).err,
            "error: --json and --figure are both 'one', wanted a file for each\n");
  EXPECT_EQ(
      run_here({"info", "--json", "/dev/full"}).err,
      "error: --json file '/dev/full' cannot be written: No space left on device; free some space there or choose "
      "another folder\n");
}

TEST(ErrorFile, IsFilledUnderTorchrun) {
  const auto path = std::filesystem::temp_directory_path() / ("tandem_error_" + std::to_string(getpid()));
  const auto ended = run_tandem({"info", "x"}, {{"TORCHELASTIC_ERROR_FILE", path.string()}});
  EXPECT_EQ(ended.status, 64);
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file)["message"]["message"],
            "argument 'x' is neither a flag nor key=value, wanted key=value");
  std::filesystem::remove(path);
}

TEST(Program, ARankNamesItselfWhenTheFaultIsItsOwn) {
  const auto own = run_tandem({"info", "--json", "/no/such/folder/x"}, {{"RANK", "1"},
                                                                        {"WORLD_SIZE", "2"},
                                                                        {"LOCAL_RANK", "1"},
                                                                        {"LOCAL_WORLD_SIZE", "2"},
                                                                        {"GROUP_RANK", "0"},
                                                                        {"MASTER_ADDR", "127.0.0.1"},
                                                                        {"MASTER_PORT", "1"}});
  EXPECT_EQ(own.status, 74);
  EXPECT_EQ(own.err,
            "error: --json file '/no/such/folder/x' cannot be written (rank 1 of 2): No such file or directory; "
            "make its folder first\n");
}

TEST(Program, ReplicasOfOneProcessRefuseALauncherOfSeveral) {
  const auto ended = run_tandem({"train", "data=synthetic", "parallel=dp"}, {{"RANK", "0"},
                                                                             {"WORLD_SIZE", "2"},
                                                                             {"LOCAL_RANK", "0"},
                                                                             {"LOCAL_WORLD_SIZE", "2"},
                                                                             {"GROUP_RANK", "0"},
                                                                             {"MASTER_ADDR", "127.0.0.1"},
                                                                             {"MASTER_PORT", "1"}});
  EXPECT_EQ(ended.status, 78);
  EXPECT_EQ(
      ended.err,
      "error: parallel is dp, whose ranks are threads of one process, with 2 processes that environment has started, "
      "wanted 1: use parallel=ddp, or start one process and give ranks\n");
}

}  // namespace
}  // namespace tandem::cli
