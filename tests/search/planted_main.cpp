#include <ATen/Parallel.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iomanip>
#include <iostream>
#include <limits>

#include "tests/search/planted.h"

// usage: planted [SEEDS] [large]: the searches whose answer is known, over so many seeds (10), on one thread; large:
// with larger batches, by several rules for the rate of the alphas.
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

/// Batches `times` as large over as much fewer steps. Goyal et al. 2017 (arXiv:1706.02677) give the rate of SGD; for
/// Adam, which moves the alphas, there is no such ground.
void run_large(int seeds) {
  struct Rule {
    const char* name;
    double (*alphas_times)(double times);
    double warmup = 0;
  };
  const auto same = [](double) { return 1.0; };
  const auto root = [](double times) { return std::sqrt(times); };
  const auto linear = [](double times) { return times; };
  for (const int times : {1, 2, 4}) {
    for (const auto& [name, alphas_times, warmup] :
         {Rule{"same", same}, Rule{"root", root}, Rule{"linear", linear}, Rule{"linear, warm-up", linear, 0.1}}) {
      if (times == 1 && alphas_times != +same) continue;
      for (const std::string_view operation : {"dil_conv_5x5", "avg_pool_3x3", "skip_connect"}) {
        over_seeds("batches x " + std::to_string(times) + ", " + name, operation, seeds, [&](uint64_t seed) {
          return search_planted(operation, seed,
                                {.times = times, .alphas_times = alphas_times(times), .warmup = warmup});
        });
      }
    }
  }
}

void run_all(int seeds) {
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

int main(int count, char** words) {
  at::set_num_threads(1);
  const int seeds = count > 1 ? std::atoi(words[1]) : 10;
  if (count > 2 && std::string_view(words[2]) == "large") {
    tandem::search::planted::run_large(seeds);
  } else {
    tandem::search::planted::run_all(seeds);
  }
}
