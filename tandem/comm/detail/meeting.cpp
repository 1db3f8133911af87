#include "tandem/comm/detail/meeting.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
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

/// libtorch's store would wait for its server too, but neither say what is wrong with a name nor stop when asked.
void await_server(const Launch& launch, const Patience& patience) {
  constexpr auto kNameServerTime = std::chrono::seconds(5);  // a name server may be slow to begin with
  const auto start = Clock::now();
  for (;;) {
    const Addresses addresses(launch);
    TORCH_CHECK_WITH(DistBackendError,
                     addresses.error == 0 || (addresses.error == EAI_AGAIN && Clock::now() - start < kNameServerTime),
                     "host '", launch.address,
                     "', where rank 0 should be, has no address: ", gai_strerror(addresses.error),
                     "; set MASTER_ADDR to an address that every rank can reach");
    if (addresses.error == 0 && any_answers(addresses)) return;
    TORCH_CHECK_WITH(DistBackendError, !patience.is_over(), "rank 0 does not answer at ", place_of(launch), " within ",
                     patience.seconds(), " s");
    patience.sleep(milliseconds(50));
  }
}

c10::intrusive_ptr<c10d::Store> open_store(const Launch& launch, const WorldOptions& options) {
  c10d::TCPStoreOptions of_store;
  of_store.port = static_cast<uint16_t>(launch.port);
  of_store.isServer = launch.rank == 0 && !launch.agent_serves_store;
  of_store.numWorkers = launch.size;
  of_store.waitWorkers = false;
  of_store.timeout = options.init_timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(launch.address, of_store);
  } catch (const std::exception& error) {
    const auto text = message_of(error);
    TORCH_CHECK_WITH(DistBackendError, text.find("EADDRINUSE") == std::string::npos, "port ", launch.port,
                     " is taken, wanted a free one for the ranks to meet at: set MASTER_PORT to another");
    TORCH_CHECK_WITH(DistBackendError, false, "the ranks cannot meet at ", place_of(launch), ": ", text);
  }
}

std::string arrival_key(int rank) { return "tandem/arrived/" + std::to_string(rank); }

/// Says who is missing; Gloo would name a socket.
void await_ranks(c10d::Store& store, const Launch& launch, const Patience& patience) {
  TORCH_CHECK_WITH(DistBackendError, store.add(arrival_key(launch.rank), 1) == 1, "rank ", launch.rank, " has come to ",
                   place_of(launch), " twice, wanted one process of each rank");
  for (;;) {
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
  if (!is_server) await_server(launch, patience);
  auto store = open_store(launch, options);
  if (launch.attempt > 0) {  // torchrun's agent keeps its store, with what the ranks before have left in it
    store = c10::make_intrusive<c10d::PrefixStore>("attempt" + std::to_string(launch.attempt), store);
  }
  await_ranks(*store, launch, patience);
  return store;
}

}  // namespace tandem::comm::detail
