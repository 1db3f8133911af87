#include "tandem/comm/segments/host_meeting.h"

#include <ATen/ATen.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <system_error>

#include "tandem/comm/segments/segment_mailbox.h"

namespace tandem::comm {
namespace {

/// "device:number" of a namespace of this process; "" if it cannot be told.
std::string namespace_of_this_process(const char* kind) {
  struct stat status {};
  if (stat((std::string("/proc/self/ns/") + kind).c_str(), &status) != 0) return "";
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

/// Equal for processes that can see and reach each other on one running machine. "": cannot be told.
std::string host_of_this_process() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  file >> boot;
  const auto network = namespace_of_this_process("net"), processes = namespace_of_this_process("pid");
  return boot.empty() || network.empty() || processes.empty() ? "" : boot + " " + network + " " + processes;
}

int64_t segment_bytes(int size) { return Stage::segment_bytes(size) + SegmentMailbox::box_bytes(size); }

std::string key_of(int rank) { return "segment/" + std::to_string(rank); }

/// True on all ranks if it is on all of them. Gloo's thread may hold the word for a while: it is no memory of the rank.
bool is_true_of_all(bool own, c10d::Backend& connected) {
  const auto word = std::make_shared<int64_t>(own);
  std::vector<at::Tensor> words = {at::from_blob(
      word.get(), {1}, [word](void*) {}, at::kLong)};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MIN;
  connected.allreduce(words, options)->wait();
  return *word == 1;
}

}  // namespace

/// Of one rank, as it stands in the store.
struct HostMeeting::Address {
  std::array<char, 120> host;
  int32_t process, descriptor;
  uint64_t key;
};

HostMeeting::HostMeeting(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
    : store_(std::move(store)), rank_(rank), size_(size) {
  Address address{};
  const auto host = host_of_this_process();
  std::memcpy(address.host.data(), host.data(), std::min(host.size(), address.host.size() - 1));
  address.process = getpid();
  try {
    own_ = std::make_shared<Segment>(Segment::create(segment_bytes(size)));
    address.descriptor = own_->descriptor();
    address.key = own_->key();
  } catch (const std::system_error&) {
    address.host = {};  // without memory, a rank is on no host
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(&address);
  store_->set(key_of(rank_), std::vector<uint8_t>(bytes, bytes + sizeof address));
}

HostMeeting::~HostMeeting() = default;

/// Empty if a rank has told nothing: then it is not of this library.
std::vector<HostMeeting::Address> HostMeeting::read_addresses() const {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size_; ++rank) keys.push_back(key_of(rank));
  if (!store_->check(keys)) return {};
  std::vector<Address> addresses;
  for (const auto& bytes : store_->multiGet(keys)) {
    if (bytes.size() != sizeof(Address)) return {};
    std::memcpy(&addresses.emplace_back(), bytes.data(), sizeof(Address));
  }
  return addresses;
}

std::shared_ptr<Segment> HostMeeting::attach(const Address& address) const {
  const auto bytes = segment_bytes(size_);
  return std::make_shared<Segment>(Segment::attach(address.process, address.descriptor, bytes, address.key));
}

std::unique_ptr<Stage> HostMeeting::stage(c10d::Backend& connected, std::chrono::milliseconds timeout) {
  const auto addresses = read_addresses();
  if (addresses.empty() || addresses[0].host[0] == '\0') return nullptr;
  const auto is_elsewhere = [&](const Address& address) { return address.host != addresses[0].host; };
  if (std::ranges::any_of(addresses, is_elsewhere)) return nullptr;
  std::vector<Stage::Member> members;
  try {
    for (int rank = 0; rank < size_; ++rank) {
      const auto& its = addresses[rank];
      members.push_back({rank == rank_ ? own_ : attach(its), ProcessWatch(its.process)});
    }
  } catch (const std::system_error&) {
    is_true_of_all(false, connected);
    return nullptr;
  }
  if (!is_true_of_all(true, connected)) return nullptr;
  for (auto& member : members) member.segment->close_descriptor();
  return std::make_unique<Stage>(rank_, std::move(members), timeout);
}

}  // namespace tandem::comm
