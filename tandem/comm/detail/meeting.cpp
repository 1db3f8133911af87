#include "tandem/comm/detail/meeting.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tandem/base/error.h"

namespace tandem::comm::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// The time that is left to come, and the wish to stop.
class Patience {
 public:
  explicit Patience(const WorldOptions& options) : options_(options), end_(Clock::now() + options.init_timeout) {}

  bool is_over() const { return Clock::now() >= end_; }
  double seconds() const { return static_cast<double>(options_.init_timeout.count()) / 1000.0; }
  void sleep(milliseconds time) const {
    std::this_thread::sleep_for(time);
    if (options_.stop_requested && options_.stop_requested()) {
      throw Interrupted("stopped while the ranks waited for each other to come; nothing had begun");
    }
  }

 private:
  const WorldOptions& options_;
  Clock::time_point end_;
};

std::string place_of(const Launch& launch) { return launch.address + ":" + std::to_string(launch.port); }

struct Addresses {
  explicit Addresses(const Launch& launch) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    error = getaddrinfo(launch.address.c_str(), std::to_string(launch.port).c_str(), &wanted, &first);
  }
  ~Addresses() {
    if (error == 0) freeaddrinfo(first);
  }
  Addresses(const Addresses&) = delete;

  int error = 0;
  addrinfo* first = nullptr;
};

/// Whether somebody listens there, within a second.
bool answers(const addrinfo& address) {
  const int socket = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return false;
  bool is_there = connect(socket, address.ai_addr, address.ai_addrlen) == 0;
  if (!is_there && errno == EINPROGRESS) {
    pollfd waiting{.fd = socket, .events = POLLOUT};
    int error = -1;
    socklen_t length = sizeof error;
    is_there =
        poll(&waiting, 1, 1000) == 1 && getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
  }
  close(socket);
  return is_there;
}

bool any_answers(const Addresses& addresses) {
  for (const auto* one = addresses.first; one != nullptr; one = one->ai_next) {
    if (answers(*one)) return true;
  }
  return false;
}

void check_address(const Launch& launch, int error) {
  TORCH_CHECK_WITH(DistBackendError, error == 0, "host '", launch.address,
                   "', where rank 0 should be, has no address: ", gai_strerror(error),
                   "; set MASTER_ADDR to an address that every rank can reach");
}

/// libtorch's store would wait for its server too, but neither say what is wrong with a name nor stop when asked.
void await_server(const Launch& launch, const Patience& patience) {
  constexpr auto kNameServerTime = std::chrono::seconds(5);  // a name server may be slow to begin with
  const auto start = Clock::now();
  for (;;) {
    const Addresses addresses(launch);
    if (addresses.error != EAI_AGAIN || Clock::now() - start >= kNameServerTime) check_address(launch, addresses.error);
    if (addresses.error == 0 && any_answers(addresses)) return;
    TORCH_CHECK_WITH(DistBackendError, !patience.is_over(), "rank 0 does not answer at ", place_of(launch), " within ",
                     patience.seconds(), " s");
    patience.sleep(milliseconds(50));
  }
}

c10d::TCPStoreOptions store_options(const Launch& launch, const WorldOptions& options) {
  c10d::TCPStoreOptions of_store;
  of_store.port = static_cast<uint16_t>(launch.port);
  of_store.isServer = launch.rank == 0 && !launch.agent_serves_store;
  of_store.numWorkers = launch.size;
  of_store.waitWorkers = false;
  of_store.timeout = options.init_timeout;
  return of_store;
}

/// The store is made on a thread of its own, which is left behind when the time is over: libtorch waits without end for
/// a program that listens there and is no store, and heeds no signal.
c10::intrusive_ptr<c10d::Store> open_store(const Launch& launch, const WorldOptions& options,
                                           const Patience& patience) {
  using Made = c10::intrusive_ptr<c10d::Store>;
  std::promise<Made> promise;
  auto made = promise.get_future();
  std::thread([address = launch.address, of_store = store_options(launch, options),
               promise = std::move(promise)]() mutable {
    try {
      promise.set_value(c10::make_intrusive<c10d::TCPStore>(address, of_store));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  while (made.wait_for(milliseconds(20)) != std::future_status::ready) {
    TORCH_CHECK_WITH(DistBackendError, !patience.is_over(), "nobody at ", place_of(launch),
                     " answers as the ranks' meeting place within ", patience.seconds(),
                     " s: set MASTER_ADDR to an address of rank 0's host and MASTER_PORT to a free port");
    patience.sleep(milliseconds(0));
  }
  try {
    return made.get();
  } catch (const std::exception& error) {
    const auto text = message_of(error);
    TORCH_CHECK_WITH(DistBackendError, text.find("EADDRINUSE") == std::string::npos, "port ", launch.port,
                     " is taken, wanted a free one for the ranks to meet at: set MASTER_PORT to another");
    TORCH_CHECK_WITH(DistBackendError, false, "the ranks cannot meet at ", place_of(launch), ": ",
                     text.substr(0, text.find("Exception raised from")));
  }
}

std::string arrival_key(int rank) { return "tandem/arrived/" + std::to_string(rank); }
std::string size_key(int rank) { return "tandem/size/" + std::to_string(rank); }

/// Of who has come so far; a rank that is not a program of ours may not say.
void check_sizes(c10d::Store& store, const Launch& launch) {
  const auto own = std::to_string(launch.size);
  for (int rank = 0; rank < launch.size; ++rank) {
    if (!store.check({size_key(rank)})) continue;
    const auto told = store.get_to_str(size_key(rank));
    TORCH_CHECK_WITH(DistBackendError, told == own, "rank ", rank, " is one of ", told, " and rank ", launch.rank,
                     " one of ", own, ", wanted the same: set WORLD_SIZE alike");
  }
}

/// Says who is missing; Gloo would name a socket.
void await_ranks(c10d::Store& store, const Launch& launch, const Patience& patience) {
  store.set(size_key(launch.rank), std::to_string(launch.size));
  TORCH_CHECK_WITH(DistBackendError, store.add(arrival_key(launch.rank), 1) == 1, "rank ", launch.rank, " has come to ",
                   place_of(launch), " twice, wanted one process of each rank");
  for (;;) {
    check_sizes(store, launch);
    std::string missing;
    for (int rank = 0; rank < launch.size; ++rank) {
      if (!store.check({arrival_key(rank)})) missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(rank);
    }
    if (missing.empty()) return;
    TORCH_CHECK_WITH(DistBackendError, !patience.is_over(), "of ", launch.size, " ranks that should meet at ",
                     place_of(launch), ", ", missing, " did not come within ", patience.seconds(), " s");
    patience.sleep(milliseconds(20));
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> meet(const Launch& launch, const WorldOptions& options) {
  const Patience patience(options);
  const bool is_server = launch.rank == 0 && !launch.agent_serves_store;
  if (is_server) {
    check_address(launch, Addresses(launch).error);
  } else {
    await_server(launch, patience);
  }
  auto store = open_store(launch, options, patience);
  if (launch.attempt > 0) {  // torchrun's agent keeps its store, with what the ranks before have left in it
    store = c10::make_intrusive<c10d::PrefixStore>("attempt" + std::to_string(launch.attempt), store);
  }
  await_ranks(*store, launch, patience);
  return store;
}

}  // namespace tandem::comm::detail
