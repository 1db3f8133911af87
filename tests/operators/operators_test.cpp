// libtandem_ops.so as Python sees it: torch's opcheck, and torch's own formulations as the oracle.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/python.h"

namespace tandem {
namespace {

constexpr size_t kCalls = 4 + 13 + 4;        // of opcheck: swish, abn, margin_softmax
constexpr size_t kGradchecks = 2 + 16 + 4;   // swish, abn, margin_softmax
constexpr size_t kComparisons = 3 + 36 + 8;  // with torch: swish, abn, margin_softmax; most also compiled

class Operators : public testing::Test {
 protected:
  void SetUp() override {
    if (answer().missing) GTEST_SKIP() << answer().text;
  }

  static const test::OracleAnswer& answer() {
    static const auto answer =
        test::ask_python("operators.py", {std::string(std::getenv("TANDEM_BINARY_DIR")) + "/libtandem_ops.so"});
    return answer;
  }

  /// The numbers whose names begin like this.
  static std::map<std::string, double> numbers(const std::string& beginning) {
    std::map<std::string, double> found;
    for (const auto& [name, tensor] : answer().tensors) {
      if (name.starts_with(beginning)) found[name] = tensor.item<double>();
    }
    return found;
  }

  static std::string error(const std::string& name) {
    const auto& text = answer().text;
    const auto begin = ("\n" + text).find("\n" + name + ": ");
    if (begin == std::string::npos) return "";
    return text.substr(begin + name.size() + 2, text.find('\n', begin) - begin - name.size() - 2);
  }
};

TEST_F(Operators, PassEveryTestOfOpcheck) {
  const auto outcomes = numbers("opcheck ");
  EXPECT_EQ(outcomes.size(), 4 * kCalls) << answer().text;
  for (const auto& [name, passed] : outcomes) EXPECT_EQ(passed, 1) << name << '\n' << answer().text;
}

TEST_F(Operators, EqualTorchsFormulationInValueAndGradient) {
  const auto differences = numbers("off ");
  EXPECT_EQ(differences.size(), kComparisons);
  for (const auto& [name, difference] : differences) EXPECT_LE(difference, 1e-10) << name;
}

TEST_F(Operators, PassGradcheckInFloat64) {
  auto outcomes = numbers("gradcheck ");
  EXPECT_EQ(outcomes.extract("gradcheck a wrong gradient").mapped(), 0);
  EXPECT_EQ(outcomes.size(), kGradchecks);
  for (const auto& [name, passed] : outcomes) EXPECT_EQ(passed, 1) << name;
}

TEST_F(Operators, UnderAutocastEqualTheSameCallInTheirOwnTypes) {
  auto differences = numbers("autocast ");
  EXPECT_EQ(differences.size(), 8 + 4 + 2 + 2u) << answer().text;
  for (const auto& [name, difference] : differences) {
    const bool near = name.starts_with("autocast near torch ");  // which rounds to eight bits more often
    EXPECT_LE(difference, near ? 0.02 : 1e-6) << name;
  }
}

TEST_F(Operators, NameWhatIsWrongInOneLine) {
  const std::map<std::string, std::string> wanted = {
      {"abn activation", "ValueError: abn: activation is 'relu', wanted leaky_relu, elu, swish or identity"},
      {"abn dims", "ValueError: abn: x is [4, 3, 2], wanted [N, C] or [N, C, H, W] with numbers in it"},
      {"abn type", "TypeError: abn: x is Half, wanted float32, float64 or bfloat16"},
      {"abn size", "ValueError: abn: weight is [2], wanted [3], a number a channel of x"},
      {"abn parameter's type", "TypeError: abn: weight is Float, wanted Double for x of Double"},
      {"abn autocast statistics", "TypeError: abn: running_mean is Half, wanted Float for x of BFloat16"},
      {"abn layout", "ValueError: abn: weight is not contiguous: call .contiguous()"},
      {"abn rows", "ValueError: abn: x is [1, 3], wanted 2 or more numbers a channel in training"},
      {"abn buffer", "ValueError: abn: running_mean or running_var requires a gradient, wanted buffers"},
      {"abn twice",
       "NotImplementedError: in-place batch normalisation: its gradient has none of its own: for second derivatives "
       "use norm batch"},
      {"loss id",
       "IndexError: softmax loss: targets[1] is 3, which no rank's classes hold: write -1 to leave a row out, or raise "
       "classes"},
      {"loss shape", "ValueError: softmax loss: features are [2, 4] and weight [3, 5], wanted [N, D] and [C_local, D]"},
      {"loss type", "TypeError: margin_softmax: features are Half, wanted float32 or float64"},
      {"loss targets", "TypeError: softmax loss: targets are Int, wanted int64"},
      {"loss scale", "ValueError: softmax loss: scale is -1, wanted a positive number"},
      {"loss twice",
       "NotImplementedError: softmax loss: its gradient has none of its own, wanted backward without create_graph"},
      {"swish forward", "NotImplementedError: swish: has no derivative in forward mode"},
      {"abn forward", "NotImplementedError: abn: has no derivative in forward mode"},
      {"loss forward", "NotImplementedError: margin_softmax: has no derivative in forward mode"},
      {"swish transform",
       "RuntimeError: cannot use C++ torch::autograd::Function with functorch transforms (vmap, grad, vjp, etc)"},
      {"swish type", "NotImplementedError: \"silu_cpu\" not implemented for 'Long'"},
  };
  for (const auto& [name, text] : wanted) EXPECT_EQ(error(name), text) << answer().text;
}

TEST_F(Operators, TheProgramOnThePageRuns) {
  const auto page = test::slurp(test::sources() / "docs/operators.md");
  const std::string begin = "```python\n";
  const auto from = page.find(begin) + begin.size();
  const test::TemporaryFolder folder;
  std::filesystem::create_directory_symlink(std::getenv("TANDEM_BINARY_DIR"), folder / "build");
  const auto [status, output] = test::run_python(folder, page.substr(from, page.find("```", from) - from));
  EXPECT_EQ(status, 0) << output;
  EXPECT_TRUE(output.starts_with("step 0: loss ")) << output;
}

TEST_F(Operators, KeepOneTensorFromForwardToBackward) {
  for (const std::string name : {"kept swish", "kept abn"}) {
    const auto& is_that_tensor = answer().tensors.at(name);
    EXPECT_EQ(is_that_tensor.numel(), 1) << name;
    EXPECT_TRUE(is_that_tensor.item<bool>()) << name;
  }
}

TEST_F(Operators, SwishWritesItsGradientOverTheIncomingOne) {
  EXPECT_EQ(answer().tensors.at("saved in swish's backward").item<double>(), 1);  // of x's bytes
}

}  // namespace
}  // namespace tandem
