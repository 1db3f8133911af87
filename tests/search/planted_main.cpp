#include <ATen/Parallel.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iomanip>
#include <iostream>
#include <limits>

#include "tests/search/planted.h"

// usage: planted [SEEDS]: the searches whose answer is known, over so many seeds (10), on one thread.
namespace tandem::search::planted {
namespace {

/// Runs a search for each seed, and prints how often `wanted` came first, by which margin, and in what time.
void over_seeds(const std::string& what, std::string_view wanted, int seeds,
                const std::function<Outcome(uint64_t seed)>& search) {
  int hits = 0;
  double sum = 0, least = std::numeric_limits<double>::infinity(), longest = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    const auto began = std::chrono::steady_clock::now();
    const auto outcome = search(seed);
    longest = std::max(longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    const double margin = outcome.margin(wanted);
    hits += outcome.first() == wanted ? 1 : 0;
    sum += margin, least = std::min(least, margin);
  }
  std::cout << std::left << std::setw(34) << what << std::setw(16) << wanted << std::right << std::setw(3) << hits
            << " of " << seeds << std::fixed << std::setprecision(2) << "   margin least " << std::setw(5) << least
            << ", mean " << std::setw(5) << sum / seeds << std::setprecision(1) << "   longest " << longest << " s"
            << std::endl;
}

void run_all(int seeds) {
  at::set_num_threads(1);
  for (const auto operation : planted_operations()) {
    for (const double gain : {10.0, 2.0}) {
      if (gain < 10 && operation != "max_pool_3x3") continue;
      const auto what = "planted, gain " + std::to_string(static_cast<int>(gain));
      over_seeds(what, operation, seeds,
                 [&](uint64_t seed) { return search_planted(operation, seed, {.gain = gain}); });
      over_seeds(what + ", random labels", operation, seeds, [&](uint64_t seed) {
        return search_planted(operation, seed, {.gain = gain, .has_random_labels = true});
      });
    }
  }
  const auto judge = [&](const std::string& what, int order, Product product) {
    over_seeds(what, "skip_connect", seeds, [&](uint64_t seed) { return judge_order(seed, order, product); });
  };
  judge("judge, order 2, exact", 2, Product::exact);
  judge("judge, order 2, differences", 2, Product::differences);
  judge("judge, order 1", 1, Product::exact);
  judge("judge, differences times epsilon", 2, Product::multiplied);
}

}  // namespace
}  // namespace tandem::search::planted

int main(int count, char** words) { tandem::search::planted::run_all(count > 1 ? std::atoi(words[1]) : 10); }
