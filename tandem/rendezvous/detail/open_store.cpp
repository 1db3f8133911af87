#include "tandem/rendezvous/detail/open_store.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tandem/base/error.h"
#include "tandem/base/limits.h"
#include "tandem/rendezvous/detail/addresses.h"
#include "tandem/rendezvous/listen.h"
#include "tandem/rendezvous/meeting.h"

namespace tandem::rendezvous::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

/// True if a server accepts a connection there within a second.
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
  for (const auto* one = addresses.first(); one != nullptr; one = one->ai_next) {
    if (answers(*one)) return true;
  }
  return false;
}

void check_address(const Launch& launch, int error) {
  TORCH_CHECK_WITH(DistBackendError, error == 0, "host '", launch.address,
                   "', where rank 0 should be, has no address: ", gai_strerror(error),
                   "; set MASTER_ADDR to an address that every rank can reach");
}

struct Answer {
  int error = 0;  // of getaddrinfo
  bool is_there = false;
};

/// Waits until the server answers. libtorch's store would wait too, but could not say what is wrong with a name, nor
/// stop on request.
void await_server(const Launch& launch, const Patience& patience) {
  constexpr auto kNameServerTime = std::chrono::seconds(5);  // a name server may be slow to begin with
  const auto start = Clock::now();
  for (;;) {
    const auto answer = patience.await<Answer>([address = launch.address, port = launch.port] {
      const Addresses addresses(address, port);
      return Answer{addresses.error(), any_answers(addresses)};
    });
    if (answer && (answer->error != EAI_AGAIN || Clock::now() - start >= kNameServerTime)) {
      check_address(launch, answer->error);
    }
    if (answer && answer->is_there) return;
    TORCH_CHECK_WITH(DistBackendError, !patience.is_over(), "rank 0 does not answer at ", place_of(launch), " within ",
                     patience.seconds(), " s");
    if (patience.stop_requested()) Patience::interrupt();
    std::this_thread::sleep_for(milliseconds(50));
  }
}

/// Makes the listening socket of rank 0's store, at MASTER_ADDR. If that name is a loopback address here (Debian's
/// 127.0.1.1) and there are other hosts, for which the name has another address, listens at all addresses.
int listen_for(const Launch& launch) {
  const Addresses addresses(launch.address, launch.port);
  check_address(launch, addresses.error());
  const bool is_for_others = launch.local_size < launch.size;
  try {
    const bool is_everywhere = is_for_others && addresses.is_loopback();
    return (is_everywhere ? listen_everywhere(launch.port) : listen_at(launch.address, launch.port)).file;
  } catch (const std::system_error& error) {
    const int code = error.code().value();
    TORCH_CHECK_WITH(DistBackendError, code != EADDRINUSE, "port ", launch.port,
                     " is taken, wanted a free one for the ranks to meet at: set MASTER_PORT to another");
    TORCH_CHECK_WITH(DistBackendError, code != EADDRNOTAVAIL && code != EAFNOSUPPORT, "'", launch.address,
                     "' is no address of this machine, on which rank 0 runs: set MASTER_ADDR to one that is");
    TORCH_CHECK_WITH(DistBackendError, false, "rank 0 cannot listen at ", place_of(launch), ": ",
                     error.code().message(),
                     launch.address.starts_with("fe80:") && launch.address.find('%') == std::string::npos
                         ? "; a link-local address needs its interface, as in fe80::1%eth0"
                         : "");
  }
}

c10d::TCPStoreOptions store_options(const Launch& launch, const MeetingOptions& options) {
  c10d::TCPStoreOptions of_store;
  of_store.port = static_cast<uint16_t>(launch.port);
  of_store.isServer = serves(launch);
  of_store.numWorkers = launch.size;
  of_store.waitWorkers = false;
  of_store.timeout = options.timeout;
  if (of_store.isServer) of_store.masterListenFd = listen_for(launch);  // the store closes it
  return of_store;
}

}  // namespace

bool serves(const Launch& launch) { return launch.rank == 0 && !launch.agent_serves_store; }

StorePointer open_store(const Launch& launch, const MeetingOptions& options, const Patience& patience) {
  if (!serves(launch)) await_server(launch, patience);
  try {
    const auto store =
        patience.await<StorePointer>([address = launch.address, of_store = store_options(launch, options)] {
          return c10::make_intrusive<c10d::TCPStore>(address, of_store);
        });
    if (store) return *store;
  } catch (const c10::DistBackendError&) {
    throw;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    if (refusal_in(error)) throw;
    patience.interrupt_if_asked_soon();
    const auto text = message_of(error);
    TORCH_CHECK_WITH(DistBackendError, false, "the ranks cannot meet at ", place_of(launch), ": ",
                     text.substr(0, text.find("Exception raised from")));
  }
  TORCH_CHECK_WITH(DistBackendError, false, "nobody at ", place_of(launch),
                   " answers as the ranks' meeting place within ", patience.seconds(),
                   " s: set MASTER_ADDR to an address of rank 0's host and MASTER_PORT to a free port");
}

}  // namespace tandem::rendezvous::detail
