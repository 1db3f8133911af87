#include "tandem/rendezvous/meeting.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "tandem/base/error.h"
#include "tandem/base/limits.h"
#include "tandem/base/log.h"
#include "tandem/rendezvous/detail/open_store.h"
#include "tandem/rendezvous/endpoint.h"
#include "tandem/rendezvous/patience.h"

namespace tandem::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

constexpr const char *kSize = "tandem/size", *kRefused = "tandem/refused";  // shared by all that come to the store
constexpr const char *kGo = "go", *kStop = "stop";                          // conclusions; any other text is an error

std::string read(c10d::Store& store, const std::string& key) {
  return store.check({key}) ? store.get_to_str(key) : std::string();
}

/// Writes `value` unless the key has one already; returns the value that it has then.
std::string write_first(c10d::Store& store, const std::string& key, const std::string& value) {
  return store.compareSet(key, std::string(), value);
}

/// The arrival of one rank at the meeting.
class Arrival {
 public:
  Arrival(StorePointer store, const Launch& launch, const Patience& patience)
      : store_(std::move(store)), launch_(launch), patience_(patience) {}

  /// Runs until there is a conclusion.
  void operator()(const std::string& card) {
    enter(card);
    for (;;) {
      const auto seen = look();
      if (!seen.size.empty() && seen.size != own_size()) refuse(seen.size);
      tell_refused(seen.refused);
      auto conclusion = seen.conclusion;
      if (conclusion.empty() && seen.all_are_here) conclusion = conclude(kGo);
      if (conclusion.empty() && patience_.stop_requested()) conclusion = conclude(kStop);
      if (conclusion.empty() && patience_.is_over()) conclusion = conclude(missing());
      if (!conclusion.empty()) return follow(conclusion);
      std::this_thread::sleep_for(milliseconds(20));
    }
  }

  /// What the ranks have told, when all have arrived.
  std::vector<std::string> cards() const { return read_cards(); }

 private:
  struct Seen {
    std::string size, refused, conclusion;  // "": not written yet
    bool all_are_here = false;
  };

  /// Calls call(store). The process that serves the store may end or hang at any time.
  template <typename Call>
  auto on_store(Call call) const {
    using Result = decltype(call(*store_));
    std::optional<Result> result;
    try {
      result = patience_.await<Result>([store = store_, call] { return call(*store); });
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception& error) {
      if (refusal_in(error)) throw;
      patience_.interrupt_if_asked_soon();
      TORCH_CHECK_WITH(DistBackendError, false, server(), " has ended while the ranks met at ", place_of(launch_));
    }
    TORCH_CHECK_WITH(DistBackendError, result.has_value(), server(), " does not answer at ", place_of(launch_),
                     " within ", patience_.seconds(), " s");
    return std::move(*result);
  }

  std::vector<std::string> read_cards() const {
    return on_store([keys = keys_of_ranks("card")](c10d::Store& store) {
      std::vector<std::string> cards;
      if (!store.check(keys)) return cards;
      for (const auto& card : store.multiGet(keys)) cards.emplace_back(card.begin(), card.end());
      return cards;
    });
  }

  std::string server() const { return launch_.agent_serves_store ? launch_.launcher : "rank 0"; }
  std::string own_size() const { return std::to_string(launch_.size); }
  std::string key(const std::string& name) const { return key_of(launch_, name); }

  std::vector<std::string> keys_of_ranks(const std::string& name) const {
    std::vector<std::string> keys;
    for (int rank = 0; rank < launch_.size; ++rank) keys.push_back(key(name + "/" + std::to_string(rank)));
    return keys;
  }
  std::vector<std::string> arrival_keys() const { return keys_of_ranks("arrived"); }

  /// Rank 0's number of ranks counts as the job's.
  void enter(const std::string& card) const {
    if (launch_.rank == 0) {
      const auto size = on_store([own = own_size()](c10d::Store& store) { return write_first(store, kSize, own); });
      if (size != own_size()) refuse(size);
    }
    const auto own = "/" + std::to_string(launch_.rank);
    const auto count = on_store([arrived = key("arrived" + own), told = key("card" + own), card](c10d::Store& store) {
      if (!card.empty() && !store.check({arrived})) store.set(told, card);
      return store.add(arrived, 1);
    });
    TORCH_CHECK_WITH(DistBackendError, count == 1, "rank ", launch_.rank, " has come to ", place_of(launch_),
                     " twice, wanted one process of each rank");
  }

  Seen look() const {
    return on_store([keys = arrival_keys(), conclusion = key("conclusion")](c10d::Store& store) {
      return Seen{read(store, kSize), read(store, kRefused), read(store, conclusion), store.check(keys)};
    });
  }

  [[noreturn]] void refuse(const std::string& size) const {
    on_store([who = "rank " + std::to_string(launch_.rank) + " of " + own_size()](c10d::Store& store) {
      store.set(kRefused, who);
      return true;
    });
    TORCH_CHECK_WITH(DistBackendError, false, "rank ", launch_.rank, " is one of ", launch_.size, " and rank 0 at ",
                     place_of(launch_), " one of ", size,
                     ", wanted the same: set WORLD_SIZE alike, or MASTER_PORT to another port for another job");
  }

  void tell_refused(const std::string& who) {
    if (who == refused_) return;
    refused_ = who;
    if (launch_.rank != 0) return;
    log::warn("a process that says it is " + who + " is refused at " + place_of(launch_) + ": this job has " +
              own_size() + " ranks");
  }

  std::string conclude(const std::string& proposal) const {
    return on_store(
        [key = key("conclusion"), proposal](c10d::Store& store) { return write_first(store, key, proposal); });
  }

  std::vector<bool> presence() const {
    return on_store([keys = arrival_keys()](c10d::Store& store) {
      std::vector<bool> present;
      for (const auto& key : keys) present.push_back(store.check({key}));
      return present;
    });
  }

  std::string missing() const {
    std::string missing;
    const auto present = presence();
    for (size_t rank = 0; rank < present.size(); ++rank) {
      if (!present[rank]) missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(rank);
    }
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%g", patience_.seconds());
    return "of " + own_size() + " ranks that should meet at " + place_of(launch_) + ", " + missing +
           " did not come within " + seconds + " s" +
           (refused_.empty() ? "" : "; a process that said it was " + refused_ + " was refused: set WORLD_SIZE alike");
  }

  void follow(const std::string& conclusion) const {
    if (conclusion == kGo) return;
    leave();
    if (conclusion == kStop) Patience::interrupt();
    TORCH_CHECK_WITH(DistBackendError, false, conclusion);
  }

  /// Waits for the other ranks to read the conclusion if this process serves the store, which ends with it.
  void leave() const {
    constexpr auto kTime = std::chrono::seconds(1);
    const auto count = [this](int64_t more) {
      return on_store([key = key("left"), more](c10d::Store& store) { return store.add(key, more); });
    };
    const int64_t left = count(1);
    if (!detail::serves(launch_)) return;
    const auto end = Clock::now() + kTime;
    const auto present = presence();
    const auto others = std::ranges::count(present, true);
    for (int64_t gone = left; gone < others && Clock::now() < end; gone = count(0)) {
      std::this_thread::sleep_for(milliseconds(5));
    }
  }

  StorePointer store_;
  const Launch& launch_;
  const Patience& patience_;
  std::string refused_;
};

}  // namespace

std::string key_of(const Launch& launch, const std::string& name) {
  return "tandem/of" + std::to_string(launch.size) + "/" + name;
}

std::string place_of(const Launch& launch) { return text_of({launch.address, launch.port}); }

Meeting meet(const Launch& launch, const MeetingOptions& options) {
  const Patience patience(options.timeout, options.stop_requested);
  auto store = detail::open_store(launch, options, patience);
  if (launch.attempt > 0) {  // torchrun's agent keeps its store, with the keys of the attempts before
    store = c10::make_intrusive<c10d::PrefixStore>("attempt" + std::to_string(launch.attempt), store);
  }
  Arrival arrival(store, launch, patience);
  arrival(options.card);
  return {store, arrival.cards()};
}

}  // namespace tandem::rendezvous
