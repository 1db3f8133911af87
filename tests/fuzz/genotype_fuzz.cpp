// libFuzzer: a genotype and a cell of NAS-Bench-201 are rejected with DataError, or come back equal when written again.
#include <cstdlib>
#include <string>
#include <string_view>

#include "tandem/base/error.h"
#include "tandem/models/genotype.h"

using namespace tandem::models;

namespace {

void check_genotype(std::string_view text) {
  const auto genotype = parse_genotype(text, "fuzz");
  if (parse_genotype(to_text(genotype, GenotypeForm::nested), "fuzz") != genotype) std::abort();
  if (parse_genotype(to_text(genotype), "fuzz") != genotype) std::abort();
}

void check_cell(std::string_view text) {
  const auto cell = parse_bench_201(text, "fuzz");
  if (parse_bench_201(to_bench_201_text(cell), "fuzz") != cell) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto check : {check_genotype, check_cell}) {
    try {
      check(text);
    } catch (const tandem::DataError&) {
    }
  }
  return 0;
}
