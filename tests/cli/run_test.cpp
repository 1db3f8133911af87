#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/run_command.h"
#include "tests/support/ports.h"
#include "tests/support/python.h"

// The program as a user runs it: small jobs on characters from the machine's fonts.
namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using test::run_tandem;
using Words = std::vector<std::string>;

class Run : public testing::Test {
 protected:
  Run() : folder_(fs::temp_directory_path() / ("tandem_run_" + std::to_string(getpid()))) {
    fs::create_directory(folder_);
  }
  ~Run() override { fs::remove_all(folder_); }

  std::string out(const std::string& name) const { return "out=" + (folder_ / name).string(); }

  Words job(const Words& more) const {
    Words words = {"train",          "data.classes=20", "train.batch=16",       "model=mlp",
                   "train.steps=12", "threads=1",       "report.compare=false", "checkpoint.every=5"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  nlohmann::json result(const std::string& name) const {
    std::ifstream file(folder_ / name / "result.json");
    return nlohmann::json::parse(file);
  }

  fs::path folder_;
};

TEST_F(Run, ThreadsAndProcessesGiveTheSameResult) {
  ASSERT_EQ(run_tandem(job({"ranks=2", out("threads")})).status, 0);
  for (const std::string transport : {"auto", "sockets"}) {
    auto words = job({out(transport), "comm.transport=" + transport});
    words.insert(words.begin(), {"launch", "-n", "2", "--"});
    const auto ended = run_tandem(words);
    ASSERT_EQ(ended.status, 0) << ended.err;
  }
  const auto threads = result("threads"), segments = result("auto"), sockets = result("sockets");
  EXPECT_EQ(threads["ranks"], 2);
  EXPECT_EQ(threads["parallel"], "ddp");
  EXPECT_EQ(threads["transport"], "memory");
  EXPECT_EQ(segments["transport"], "segments");
  EXPECT_EQ(sockets["transport"], "sockets");
  EXPECT_EQ(threads["losses"], segments["losses"]);
  EXPECT_EQ(threads["weights_hash"], segments["weights_hash"]);
  EXPECT_NEAR(threads["loss"].get<double>(), sockets["loss"].get<double>(), 1e-4);
  for (const auto& run : {threads, segments, sockets}) {
    EXPECT_EQ(run["wire"]["ranks"][0]["reduce_scatter"], threads["wire"]["ranks"][0]["reduce_scatter"]);
    EXPECT_EQ(run["memory"]["unattributed"]["peak_bytes"], 0);
  }
  for (const auto& rank : segments["memory"]["ranks"]) {
    EXPECT_EQ(rank["train"]["peak_bytes"], rank["train"]["predicted_peak_bytes"]);
  }
  for (const auto& rank : threads["memory"]["ranks"]) {
    int64_t sum = 0;
    for (const auto& [name, bytes] : rank["categories"].items()) sum += bytes.get<int64_t>();
    EXPECT_EQ(sum, rank["peak_bytes"]);
    sum = 0;
    for (const auto& [block, categories] : rank["train"]["blocks"].items()) {
      for (const auto& [name, bytes] : categories.items()) sum += bytes.get<int64_t>();
    }
    EXPECT_EQ(sum, rank["train"]["peak_bytes"]);
    for (const char* category : {"parameters", "optimizer"}) {
      EXPECT_EQ(rank["train"]["blocks"]["fc2"][category], 256 * 257 * 4);
      EXPECT_EQ(rank["train"]["blocks"]["classifier"][category], 10 * 128 * 4);
      EXPECT_EQ(rank["train"]["blocks"][""][category], 0);
    }
    EXPECT_LE(rank["train"]["peak_bytes"], rank["peak_bytes"]);
    EXPECT_EQ(rank["head_bytes"], 3 * 10 * 128 * 4);  // weight, gradient, momentum of 10 classes
  }
}

TEST_F(Run, RanksThatDoNotWaitTellHowFarTheyWereApart) {
  const Words async = {
      "parallel=ps",        "ps.mode=async", "ps.servers=1", "ps.staleness=3", "head.parallel=replicated",
      "report.compare=true"};
  auto threads = job({"ranks=3", out("threads")}), processes = job({out("processes")});
  processes.insert(processes.begin(), {"launch", "-n", "3", "--"});
  for (auto* words : {&threads, &processes}) {
    words->insert(words->end(), async.begin(), async.end());
    const auto ended = run_tandem(*words);
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_NE(ended.out.find("\nstale "), ended.out.npos) << ended.out;
  }
  for (const auto* name : {"threads", "processes"}) {
    const auto run = result(name);
    EXPECT_EQ(run["losses"].size(), 12U);
    EXPECT_LE(run["staleness"]["most"].get<int64_t>(), 3);
    EXPECT_LE(run["staleness"]["mean"].get<double>(), run["staleness"]["most"].get<double>());
    EXPECT_FALSE(run["memory"].contains("forms"));  // other forms of the head cannot train so
  }
  auto sharded = threads;
  sharded.push_back("head.parallel=sharded");
  EXPECT_EQ(run_tandem(sharded).status, 78);
}

/// Models that meet send weights, and a head that is split sends none of its gradients.
TEST_F(Run, OverlapIsToldWhereGradientsTravel) {
  const auto tells = [&](const std::string& name, const Words& more) {
    auto words = job({"data=synthetic", "head.classes=20", "data.size=8", "eval.every=0", "ranks=2", out(name)});
    words.insert(words.end(), more.begin(), more.end());
    const auto ended = run_tandem(words);
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(ended.out.find("overlap") != std::string::npos, result(name)["overlap"].is_number()) << ended.out;
    return result(name)["overlap"].is_number();
  };
  EXPECT_TRUE(tells("ddp", {}));
  EXPECT_TRUE(tells("servers", {"parallel=ps", "ps.update=server"}));
  EXPECT_FALSE(tells("local", {"parallel=local-sgd", "local_sgd.every=2"}));
  int number = 0;
  for (const Words& strategy : std::vector<Words>{{"parallel=ddp"},
                                                  {"parallel=zero1"},
                                                  {"parallel=fsdp"},
                                                  {"parallel=ps", "ps.update=server"},
                                                  {"train.shards=2"}}) {
    auto words = strategy;
    words.insert(words.end(), {"model=none", "embedding=192"});
    EXPECT_FALSE(tells("none" + std::to_string(number++), words)) << strategy.back();
  }
}

TEST_F(Run, EventsOfTheFirstStepsAreWritten) {
  ASSERT_EQ(run_tandem(job({"ranks=2", "memory.events=2", out("events")})).status, 0);
  for (const std::string rank : {"0", "1"}) {
    std::ifstream file(folder_ / "events" / ("memory_rank_000" + rank + ".jsonl"));
    std::optional<int64_t> live;
    std::set<std::string> blocks;
    int64_t last_step = 0;
    for (std::string line; std::getline(file, line);) {
      const auto event = nlohmann::json::parse(line);
      const auto what = event["what"].get<std::string>();
      const auto change = (what == "allocate") - (what == "free");
      if (live) {
        EXPECT_EQ(event["live"], *live + change * event["bytes"].get<int64_t>());
      }
      live = event["live"].get<int64_t>();
      last_step = std::max(last_step, event["step"].get<int64_t>());
      blocks.insert(event["block"].get<std::string>());
    }
    EXPECT_TRUE(live);
    EXPECT_EQ(last_step, 1);
    EXPECT_EQ(blocks, (std::set<std::string>{"", "classifier", "embedding", "fc1", "fc2"}));
  }
}

/// The same two ranks, whoever starts them.
TEST_F(Run, OtherLaunchersGiveTheSameResult) {
  const std::map<std::string, Words> launchers = {
      {"torchrun",
       {test::python(), "-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node", "2"}},
      {"mpich", {"mpirun.mpich", "-n", "2"}},
      {"openmpi", {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"}}};
  ASSERT_EQ(run_tandem(job({"ranks=2", out("threads")})).status, 0);
  for (const auto& [name, launcher] : launchers) {
    auto words = launcher;
    for (const auto& word : test::tandem_command(job({out(name)}))) words.push_back(word);
    const auto ended = test::run_command(words);
    ASSERT_NE(ended.status, 127) << name << " is missing: ./dev test installs it";
    ASSERT_EQ(ended.status, 0) << ended.out << ended.err;
    const auto threads = result("threads"), processes = result(name);
    EXPECT_EQ(processes["ranks"], 2);
    EXPECT_NEAR(threads["loss"].get<double>(), processes["loss"].get<double>(), 1e-4);
    EXPECT_EQ(threads["wire"]["ranks"][1]["reduce_scatter"], processes["wire"]["ranks"][1]["reduce_scatter"]);
  }
}

// torchrun writes $ for $$ in its arguments.
TEST_F(Run, TorchrunStartsAgainAfterARankIsKilled) {
  const auto checkpoint = (folder_ / "run" / "checkpoints" / "step_*").string();
  const std::string once =
      "me=$BASHPID; if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then "
      "(until compgen -G '" +
      checkpoint + "' >/dev/null; do sleep 0.05; done; kill -9 $me) & fi; exec \"$0\" \"$@\"";
  Words words = {test::python(),
                 "-m",
                 "torch.distributed.run",
                 "--no-python",
                 "--standalone",
                 "--max-restarts",
                 "1",
                 "--nproc-per-node",
                 "2",
                 "bash",
                 "-c",
                 once};
  for (const auto& word : test::tandem_command(job({"train.steps=300", "eval.every=0", "resume=auto", out("run")}))) {
    words.push_back(word);
  }
  const auto ended = test::run_command(words);
  ASSERT_EQ(ended.status, 0) << ended.out << ended.err;
  EXPECT_NE(ended.err.find("resume   goes on after step "), std::string::npos) << ended.err;
  EXPECT_EQ(result("run")["steps"], 300);
}

TEST_F(Run, EachHeadTrains) {
  const std::vector<Words> heads = {{"head=normalised"},
                                    {"head=arcface", "head.margin=0.5", "head.gradient=detached", "head.beyond=cosine"},
                                    {"head=combined", "head.filter=0.6"},
                                    {"head=sphereface"},
                                    {"head=l-softmax", "head.factor=2", "head.keep_bytes=0", "head.smoothing=0.1"}};
  for (const auto& head : heads) {
    auto words = job({"ranks=2", "train.lr=0.02", out(head[0])});
    words.insert(words.end(), head.begin(), head.end());
    const auto ended = run_tandem(words);
    EXPECT_EQ(ended.status, 0) << head[0] << ended.err;
  }
  const auto wrong = run_tandem(job({"head=softmax", "head.filter=0.5", out("wrong")}));
  EXPECT_EQ(wrong.status, 78);
  EXPECT_EQ(wrong.err,
            "error: head.filter is 0.5 with head=softmax, which has no cosines to compare, wanted 1: leave head.filter "
            "out\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "wrong"));
}

TEST_F(Run, AHeadThatIsUpdatedInBackwardLearnsTheSameWithAThirdLess) {
  for (const std::string optimizer : {"sgd", "adamw"}) {
    const auto with = [&](const std::string& fused) {
      return job({"ranks=2", "train.optimizer=" + optimizer, "head.fused_update=" + fused, out(optimizer + fused)});
    };
    ASSERT_EQ(run_tandem(with("off")).status, 0);
    ASSERT_EQ(run_tandem(with("on")).status, 0);
    EXPECT_NEAR(result(optimizer + "on")["loss"], result(optimizer + "off")["loss"], 1e-6);
  }
  const auto bytes = [&](const std::string& name) {
    return result(name)["memory"]["ranks"][0]["head_bytes"].get<int64_t>();
  };
  EXPECT_EQ(bytes("sgdoff") - bytes("sgdon"), 10 * 128 * 4);
  const auto clipped = run_tandem(job({"head.fused_update=on", "train.clip=1", out("clipped")}));
  EXPECT_EQ(clipped.status, 78);
}

TEST_F(Run, ASignalEndsAJobWhoseOtherRanksAreMissing) {
  const int port = test::free_port();
  test::Running process(
      test::tandem_command(job({out("run")})),
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(port)}});
  ASSERT_TRUE(test::is_served_soon(port));
  process.signal(SIGTERM);
  const auto ended = process.wait();
  EXPECT_EQ(ended.status, 75);
  EXPECT_EQ(ended.err.substr(ended.err.find("error: ")),
            "error: stopped before the job had begun; there is nothing to save\n");
}

TEST_F(Run, RanksWithDifferentSettingsAreRefused) {
  const auto end_of_both = [&](const Words& second) {
    const auto port = std::to_string(test::free_port());
    const auto rank = [&](int number, const Words& more) {
      return std::make_unique<test::Running>(test::tandem_command(job(more)),
                                             test::Environment{{"RANK", std::to_string(number)},
                                                               {"WORLD_SIZE", "2"},
                                                               {"MASTER_ADDR", "127.0.0.1"},
                                                               {"MASTER_PORT", port}});
    };
    const auto leader = rank(0, {out("run")}), other = rank(1, second);
    return std::array{leader->wait(), other->wait()};
  };
  const auto both = end_of_both({out("run"), "train.lr=0.125"});
  for (const auto& ended : both) {
    EXPECT_EQ(ended.status, 78) << ended.err;
    const auto number = std::to_string(&ended == &both[1]);
    EXPECT_EQ(ended.err.substr(ended.err.find("error: ")),
              "error: train.lr is '0.125' on rank 1, wanted '0.3' as rank 0 has (rank " + number +
                  " of 2): start every rank with the same settings\n");
  }
  const auto [first, second] = end_of_both({out("elsewhere"), "threads=2"});  // these may differ
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "elsewhere"));
}

TEST_F(Run, IdleSettingsAreTold) {
  const auto ended = run_tandem(job({"head=softmax", "head.margin=0.3", "train.milestones=1", out("run")}));
  EXPECT_EQ(ended.status, 0);
  EXPECT_NE(ended.err.find("warning: head.margin has no effect except with head=cosface and head=arcface\n"),
            std::string::npos)
      << ended.err;
  EXPECT_NE(ended.err.find("warning: train.milestones has no effect except with train.schedule=step\n"),
            std::string::npos);
}

TEST_F(Run, EvalTakesTheRunsOwnSettings) {
  ASSERT_EQ(run_tandem(job({"ranks=3", out("run")})).status, 0);
  const auto ended = run_tandem({"eval", "resume=" + (folder_ / "run").string(), "--json", "-"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto evaluated = nlohmann::json::parse(ended.out), trained = result("run");
  EXPECT_EQ(evaluated["top1"], trained["top1"]);
  EXPECT_EQ(evaluated["ranks"], 3);
  EXPECT_EQ(evaluated["steps"], 12);
  const auto one_font =
      run_tandem({"eval", "resume=" + (folder_ / "run").string(), "data.test_fonts=zenhei", "--json", "-"});
  ASSERT_EQ(one_font.status, 0) << one_font.err;  // the fonts that were learned from stay the run's
  EXPECT_LT(nlohmann::json::parse(one_font.out)["test_images"].get<int>(), trained["test_images"].get<int>());
  const auto of_training = run_tandem({"eval", (folder_ / "run").string(), "train.batch=4"});
  EXPECT_EQ(of_training.status, 78);  // how it was trained matters no more
  EXPECT_EQ(of_training.err,
            "error: train.batch is a setting of training, wanted one of those of tandem eval: 'tandem help eval' lists "
            "them\n");
}

TEST_F(Run, AUsedFolderIsNotBegunAgain) {
  ASSERT_EQ(run_tandem(job({out("run")})).status, 0);
  const auto again = run_tandem(job({out("run")}));
  EXPECT_EQ(again.status, 78);
  EXPECT_EQ(again.err.substr(again.err.find("error: ")),
            "error: out is '" + (folder_ / "run").string() +
                "', which holds checkpoints of a run, wanted a new folder: add resume=auto to go on with "
                "that run, or name another folder\n");
  const auto complete = run_tandem(job({out("run"), "resume=auto", "--json", "-"}));
  EXPECT_EQ(complete.status, 0);
  EXPECT_TRUE(nlohmann::json::parse(complete.out)["loss"].is_null());
  EXPECT_TRUE(result("run")["loss"].is_number());  // the finished run's result stays
}

TEST_F(Run, OtherFontsAreAnotherJob) {
  ASSERT_EQ(run_tandem(job({out("run"), "data.train_fonts=uming", "data.test_fonts=zenhei"})).status, 0);
  const auto other = run_tandem(job({out("run"), "data.train_fonts=gkai", "data.test_fonts=zenhei", "resume=auto"}));
  EXPECT_EQ(other.status, 78);
  EXPECT_NE(other.err.find("is of another job: data.train_fonts is "), std::string::npos) << other.err;
  EXPECT_NE(other.err.find("', which holds checkpoints, but no whole one of this job: name another folder, or give the "
                           "job's own settings\n"),
            std::string::npos)
      << other.err;
  EXPECT_EQ(result("run")["steps"], 12);  // nothing was written over
}

TEST_F(Run, AFolderTakesOneRunAtATime) {
  test::Running first(test::tandem_command(job({"train.steps=100000", "eval.every=0", out("run")})));
  const auto checkpoint = folder_ / "run" / "checkpoints" / "step_00000005";
  for (int i = 0; i < 2000 && !fs::exists(checkpoint); ++i) usleep(10'000);
  const auto second = run_tandem(job({out("run"), "resume=auto"}));
  EXPECT_EQ(second.status, 78);
  EXPECT_NE(
      second.err.find("', in which another run is at work, wanted a folder of its own: wait for that run to end, or "
                      "name another folder\n"),
      std::string::npos)
      << second.err;
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait().status, 75);
}

TEST_F(Run, AStartThatFailsLeavesNoFolder) {
  ASSERT_EQ(run_tandem(job({out("run")})).status, 0);
  const auto of_another_job = "resume=" + (folder_ / "run").string();
  std::ofstream(folder_ / "kept") << "a user's file";
  for (const std::string ranks : {"1", "2"}) {
    const auto ended = run_tandem(job({"embedding=9", of_another_job, "ranks=" + ranks, out("new")}));
    EXPECT_EQ(ended.status, 65) << ended.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "new")) << ranks;
  }
  std::filesystem::create_directory(folder_ / "there");
  std::filesystem::rename(folder_ / "kept", folder_ / "there" / "kept");
  EXPECT_EQ(run_tandem(job({"embedding=9", of_another_job, out("there")})).status, 65);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "there" / "kept"));
}

TEST_F(Run, RanksThatDoNotComeAreNamed) {
  const auto end_at = [&](const std::string& port) {
    const auto ended =
        run_tandem(job({"comm.init_timeout=1", out("run")}),
                   {{"RANK", "0"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
    return std::pair(ended.status, ended.err.substr(ended.err.find("error: ")));
  };
  const auto port = std::to_string(test::free_port());
  EXPECT_EQ(end_at(port), std::pair(76, "error: of 3 ranks that should meet at 127.0.0.1:" + port +
                                            ", rank 1, rank 2 did not come within 1 s (rank 0 of 3)\n"));
  EXPECT_EQ(end_at("0"), std::pair(78, std::string("error: environment variable MASTER_PORT is 0, wanted 1..65535\n")));
}

TEST_F(Run, ARankThatDoesNotComeIsNamedInTime) {
  const auto ended =
      run_tandem({"launch", "-n", "3", "--", "bash", "-c", "[ $RANK = 1 ] && exec sleep 5; exec \"$0\" \"$@\"",
                  test::tandem_command({})[0], "train", "data.classes=20", "train.batch=16", "model=mlp",
                  "train.steps=2", "comm.init_timeout=1.5", out("run")});
  EXPECT_EQ(ended.status, 76);
  EXPECT_NE(ended.err.find(", rank 1 did not come within 1.5 s"), std::string::npos) << ended.err;
}

TEST_F(Run, TheDoctorNamesWhoWasKilled) {
  const auto saved = (folder_ / "run" / "checkpoints" / "step_*").string();
  auto words = job({"train.steps=100000", "eval.every=0", out("run")});
  words.insert(words.begin(), {"launch", "-n", "2", "--grace", "1", "--", "bash", "-c",
                               "[ $RANK = 1 ] && (until compgen -G '" + saved +
                                   "' >/dev/null; do sleep 0.05; done; kill -9 $$) & exec \"$0\" \"$@\"",
                               test::tandem_command({})[0]});
  const auto ended = run_tandem(words);
  EXPECT_EQ(ended.status, 137) << ended.err;
  const auto doctor = run_tandem({"doctor", (folder_ / "run").string()});
  EXPECT_EQ(doctor.status, 0) << doctor.err;
  EXPECT_NE(doctor.out.find(
                "rank 1 left no record (killed, stopped, ended early, or its machine is gone) while rank 0 waited in "),
            std::string::npos)
      << doctor.out;
}

TEST_F(Run, ARankThatIsSuspendedIsNamed) {
  const auto saved = (folder_ / "run" / "checkpoints" / "step_*").string();
  auto words = job({"train.steps=100000", "eval.every=0", "comm.timeout=2", out("run")});
  words.insert(words.begin(), {"launch", "-n", "2", "--grace", "1", "--", "bash", "-c",
                               "[ $RANK = 1 ] && (until compgen -G '" + saved +
                                   "' >/dev/null; do sleep 0.05; done; kill -STOP $$) & exec \"$0\" \"$@\"",
                               test::tandem_command({})[0]});
  const auto ended = run_tandem(words);
  EXPECT_EQ(ended.status, 76) << ended.err;
  const auto flight = (folder_ / "run" / "flight").string();
  EXPECT_NE(ended.err.find("; 'tandem doctor " + flight + "' tells more"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("error: rank 1 of 2 is suspended, wanted running: rank 0 of 2 exited with code 76\n"),
            std::string::npos)
      << ended.err;
  const auto doctor = run_tandem({"doctor", flight});
  EXPECT_EQ(doctor.out.substr(0, 21), "rank 1 left no record") << doctor.out;
}

TEST_F(Run, TheDoctorTellsNoOldStory) {
  const auto flight = folder_ / "run" / "flight";
  fs::create_directories(flight);
  std::ofstream(flight / "flight_rank_0000.json") << "of a run before";
  ASSERT_EQ(run_tandem(job({out("run")})).status, 0);
  const auto doctor = run_tandem({"doctor", (folder_ / "run").string()});
  EXPECT_EQ(doctor.status, 65);
  EXPECT_EQ(doctor.err, "error: run '" + (folder_ / "run").string() +
                            "' has no flight records since it was last started, wanted some: those of before are in '" +
                            (folder_ / "run" / "flight-before").string() + "'\n");
  EXPECT_TRUE(fs::exists(folder_ / "run" / "flight-before" / "flight_rank_0000.json"));
}

TEST_F(Run, SignalsSaveAndGive75) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto name = "run" + std::to_string(signal);
    test::Running running(test::tandem_command(job({"ranks=2", "train.steps=100000", "eval.every=0", out(name)})));
    const auto first = folder_ / name / "checkpoints" / "step_00000005";
    for (int i = 0; i < 2000 && !fs::exists(first); ++i) usleep(10'000);
    running.signal(signal);
    const auto ended = running.wait();
    EXPECT_EQ(ended.status, 75) << ended.err;
    EXPECT_TRUE(result(name)["top1"].is_null() && result(name)["test_loss"].is_null());
    const auto steps = result(name)["steps"].get<int64_t>();
    EXPECT_TRUE(fs::exists(result(name)["checkpoint"].get<std::string>()));
    EXPECT_GE(steps, 5);
  }
}

TEST_F(Run, ACutCheckpointFallsBackAndSaysSo) {
  ASSERT_EQ(run_tandem(job({out("run")})).status, 0);
  const auto file = folder_ / "run" / "checkpoints" / "step_00000012" / "rank_0000.safetensors";
  fs::resize_file(file, 1000);
  const auto ended = run_tandem(job({out("run"), "resume=auto"}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(
      ended.err.find("warning: checkpoint step_00000012 is cut short: rank_0000.safetensors has 1000 bytes, wanted "),
      std::string::npos)
      << ended.err;
  EXPECT_NE(ended.err.find("resume   goes on after step 10"), std::string::npos) << ended.err;
}

TEST_F(Run, FaultsAreOneLine) {
  const auto last_line = [](const std::string& text) {
    const auto end = text.find_last_not_of('\n');
    const auto begin = text.rfind('\n', end);
    return text.substr(begin == text.npos ? 0 : begin + 1, end - (begin == text.npos ? -1 : begin));
  };
  const auto batch = run_tandem(job({"ranks=4", "train.batch=3", out("a")}));
  EXPECT_EQ(batch.status, 78);
  EXPECT_NE(last_line(batch.err).find("error: train.batch is 3, wanted at least 4, one image a rank"),
            std::string::npos)
      << batch.err;
  const auto misspelt = run_tandem({"train", "trian.lr=1"});
  EXPECT_EQ(misspelt.status, 78);
  EXPECT_NE(misspelt.err.find("did you mean train.lr?"), std::string::npos);
  const auto nothing = run_tandem(job({out("b"), "resume=" + (folder_ / "nothing").string()}));
  EXPECT_EQ(nothing.status, 65);
  EXPECT_EQ(nothing.err, "error: checkpoints '" + (folder_ / "nothing").string() +
                             "' are missing, wanted a folder: name a run's folder, its checkpoints or one of them\n");
  EXPECT_FALSE(fs::exists(folder_ / "b"));
  const auto image = folder_ / "images" / "class";
  fs::create_directories(image);
  std::ofstream(image / "x.png") << "no image";
  const auto folder = run_tandem({"train", "data=images:" + (folder_ / "images").string()});
  EXPECT_EQ(folder.status, 65);
  EXPECT_EQ(folder.err, "error: image '" + (image / "x.png").string() + "' is neither JPEG nor PNG\n");
}

}  // namespace
}  // namespace tandem::cli
