#include "tandem/comm/detail/connecting.h"

#include <numeric>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/limits.h"
#include "tandem/comm/collectives.h"
#include "tandem/comm/connect.h"
#include "tandem/rendezvous/meeting.h"
#include "tandem/rendezvous/patience.h"

namespace tandem::comm::detail {
namespace {

using Clock = std::chrono::steady_clock;
using StorePointer = c10::intrusive_ptr<c10d::Store>;
using GroupPointer = std::unique_ptr<ProcessGroup>;

std::string there_key(const rendezvous::Launch& launch, int rank) {
  return rendezvous::key_of(launch, "there/" + std::to_string(rank));
}

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
  return text;
}

/// Each rank that could not connect announces itself and waits a while for the others to do so. The first rank that has
/// waited long enough writes down which ranks are lost, so that all ranks report the same.
std::string find_lost(c10d::Store& store, const rendezvous::Launch& launch) {
  constexpr auto kTime = std::chrono::seconds(3);
  const auto result_key = rendezvous::key_of(launch, "lost");
  store.set(there_key(launch, launch.rank), "");
  const auto end = Clock::now() + kTime;
  std::vector<int> lost;
  do {
    if (store.check({result_key})) return store.get_to_str(result_key);
    lost.clear();
    for (int rank = 0; rank < launch.size; ++rank) {
      if (!store.check({there_key(launch, rank)})) lost.push_back(rank);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (!lost.empty() && Clock::now() < end);
  const std::string text = lost.empty() ? "nobody" : list(lost);
  const auto stands = store.compareSet(result_key, std::string(), text);
  // The store may end with rank 0: give the other ranks, which poll every 20 ms, time to read.
  if (launch.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  return stands;
}

[[noreturn]] void fail(const StorePointer& store, const rendezvous::Launch& launch, const WorldOptions& options,
                       const std::string& reason) {
  const rendezvous::Patience patience(std::chrono::seconds(5), options.stop_requested);
  std::optional<std::string> lost;
  try {
    // On a connection of its own: the thread that connects may still wait for an answer on the store's.
    lost = patience.await<std::string>([store, launch] { return find_lost(*store->clone(), launch); });
  } catch (const std::exception&) {
    patience.interrupt_if_asked_soon();
  }
  if (!lost) lost = launch.agent_serves_store ? launch.launcher : "rank 0";  // nobody serves the store any more
  TORCH_CHECK_WITH(DistBackendError, *lost != "nobody", "the ", launch.size, " ranks that met at ",
                   rendezvous::place_of(launch), " cannot connect to each other: ", reason);
  TORCH_CHECK_WITH(DistBackendError, false, "of ", launch.size, " ranks that met at ", rendezvous::place_of(launch),
                   ", ", *lost,
                   " was lost before all were connected (killed, suspended, or its machine is gone): ", reason);
}

}  // namespace

GroupPointer connect_ranks(const StorePointer& store, const rendezvous::Launch& launch, const WorldOptions& options,
                           const std::shared_ptr<Instruments>& instruments) {
  const auto transport = options.transport.value_or(Transport::segments);
  const auto connect = [store, launch, timeout = options.timeout, transport, instruments] {
    std::vector<int> ranks(launch.size);
    std::iota(ranks.begin(), ranks.end(), 0);
    auto group = std::make_unique<ProcessGroup>(process_connect(store, timeout, transport, launch.address), "world",
                                                ranks, launch.rank, instruments);
    barrier(*group);
    store->set(there_key(launch, launch.rank), "");
    return group;
  };
  // Gloo applies the timeout of an operation itself, but some of its calls ignore it.
  const auto most = std::min(options.init_timeout, 2 * options.timeout + std::chrono::milliseconds(5000));
  const rendezvous::Patience patience(most, options.stop_requested);
  std::string reason = c10::str("no answer within ", patience.seconds(), " s");
  try {
    if (auto group = patience.await<GroupPointer>(connect)) return std::move(*group);
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    if (refusal_in(error)) throw;
    reason = message_of(error);
  }
  fail(store, launch, options, reason);
}

}  // namespace tandem::comm::detail
