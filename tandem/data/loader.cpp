#include "tandem/data/loader.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/base/threads.h"
#include "tandem/data/detail/device_sender.h"

namespace tandem::data {
namespace {

constexpr int64_t kSamplesAtOnce = 16;  // samples that a thread takes at a time

/// Consecutive positions of an epoch.
struct Run {
  int64_t first = 0, count = 0;
};

/// The parts of a batch that one rank gets: at least one, which may be empty.
std::vector<Run> runs_of(const LoaderOptions& options, int64_t begin, int64_t samples) {
  if (options.rank >= options.size) return {{begin, 0}};
  const int64_t parts = std::max<int64_t>(options.shards, options.size), each = samples / parts, more = samples % parts;
  std::vector<Run> runs;
  for (int64_t part = options.rank; part < parts; part += options.size) {
    runs.push_back({begin + part * each + std::min(part, more), each + (part < more ? 1 : 0)});
  }
  return runs;
}

int64_t count_of(const std::vector<Run>& runs) {
  int64_t count = 0;
  for (const auto& run : runs) count += run.count;
  return count;
}

/// A batch in preparation. The loader's mutex guards the numbers; the thread that claimed a sample writes its part of
/// the tensors.
struct Job {
  Batch batch;
  float* images = nullptr;
  int64_t* labels = nullptr;
  std::vector<Run> runs;
  int64_t epoch = 0, count = 0;
  int64_t claimed = 0, finished = 0;
  int64_t fault_at = std::numeric_limits<int64_t>::max();
  std::exception_ptr fault;
};

int64_t position_of(const Job& job, int64_t i) {
  for (const auto& run : job.runs) {
    if (i < run.count) return run.first + i;
    i -= run.count;
  }
  return i;
}

/// Makes samples. Holds scratch memory, so each thread needs its own.
class Maker {
 public:
  Maker(const Dataset& dataset, const LoaderOptions& options)
      : dataset_(dataset), options_(options), augment_(options.augment, dataset.image_shape()) {
    const auto [channels, height, width] = dataset.image_shape();
    pixels_.resize(static_cast<size_t>(channels * height * width));
  }

  /// Makes sample i of the job.
  void make(const Job& job, const Permutation& order, int64_t i) {
    const int64_t position = position_of(job, i);
    const int64_t sample = options_.shuffle ? order(position) : position;
    job.labels[i] = read(job, sample, position);
    CounterRng rng = draws("augment", job, position);
    augment_(pixels_, rng, job.images + i * static_cast<int64_t>(pixels_.size()));
  }

 private:
  CounterRng draws(std::string_view purpose, const Job& job, int64_t position) const {
    return {options_.seed, stream_of(purpose) + static_cast<uint64_t>(job.epoch), static_cast<uint64_t>(position)};
  }

  int64_t read(const Job& job, int64_t sample, int64_t position) {
    const double least_area = options_.augment.random_crop;
    if (least_area == 0) return dataset_.read(sample, pixels_);
    return dataset_.read_cropped(sample, RandomCrop(least_area, draws("crop", job, position)), pixels_);
  }

  const Dataset& dataset_;
  const LoaderOptions& options_;
  Augmenter augment_;
  std::vector<uint8_t> pixels_;
};

void check(const Dataset& dataset, const LoaderOptions& options) {
  TORCH_CHECK_VALUE(
      options.size >= 1 && options.idle >= 0 && options.rank >= 0 && options.rank < options.size + options.idle,
      "loader: rank is ", options.rank, " of ", options.size, ", wanted 0..size-1, or an idle one");
  TORCH_CHECK_VALUE(options.shards >= 0 && options.shards % options.size == 0, "loader: shards is ", options.shards,
                    " with size ", options.size, ", wanted a multiple of it");
  TORCH_CHECK_VALUE(options.prefetch >= 0, "loader: prefetch is ", options.prefetch, ", wanted 0 or more");
  TORCH_CHECK_VALUE(options.threads >= 1, "loader: threads is ", options.threads, ", wanted 1 or more");
  const std::string batch = "batch is " + std::to_string(options.batch);
  if (options.batch < options.size) {
    throw SettingsError(batch + ", wanted at least the number of ranks, " + std::to_string(options.size));
  }
  if (options.batch < options.shards) {
    throw SettingsError(batch + ", wanted at least the number of shards, " + std::to_string(options.shards));
  }
  if (options.drop_last && options.batch > dataset.size()) {
    throw SettingsError(batch + ", wanted at most the number of images, " + std::to_string(dataset.size()),
                        "lower batch");
  }
}

}  // namespace

class Loader::Impl {
 public:
  Impl(const Dataset& dataset, LoaderOptions options)
      : dataset_(dataset),
        options_(std::move(options)),
        order_(dataset.size(), options_.seed, 0),
        own_maker_(dataset, options_) {
    const int threads = options_.prefetch == 0 ? 0 : options_.threads;
    try {
      for (int i = 0; i < threads; ++i) workers_.push_back(start_thread<std::jthread>([this] { work(); }));
    } catch (...) {  // no more threads are available: stop those that run, or they would be joined for ever
      stop();
      throw;
    }
  }

  ~Impl() { stop(); }  // frees the jobs' tensors on the caller's thread

  const LoaderOptions& options() const { return options_; }

  int64_t batches_per_epoch() const {
    const int64_t n = dataset_.size();
    return options_.drop_last ? n / options_.batch : (n + options_.batch - 1) / options_.batch;
  }

  int64_t samples_per_epoch() const { return std::min(batches_per_epoch() * options_.batch, dataset_.size()); }

  void start(int64_t epoch, int64_t first_batch) {
    TORCH_CHECK_VALUE(epoch >= 0, "loader: epoch is ", epoch, ", wanted 0 or more");
    TORCH_CHECK_VALUE(first_batch >= 0 && first_batch <= batches_per_epoch(), "loader: first batch is ", first_batch,
                      ", wanted 0..", batches_per_epoch());
    drop_jobs();
    order_ = Permutation(dataset_.size(), options_.seed, static_cast<uint64_t>(epoch));
    epoch_ = epoch;
    next_batch_ = first_batch;
    while (static_cast<int>(jobs_.size()) < options_.prefetch && add_job()) {
    }
  }

  bool next(Batch& batch) {
    TORCH_CHECK_VALUE(epoch_ >= 0, "loader: next() before start()");
    if (jobs_.empty()) batch = Batch();  // its memory goes before that of the next is allocated, here and below
    if (jobs_.empty() && !add_job()) return false;
    Job& job = *jobs_.front();
    if (workers_.empty()) {
      fill(job);
    } else {
      std::unique_lock lock(mutex_);
      done_.wait(lock, [&] { return job.finished == job.count; });
    }
    const auto done = take_front();
    if (!done->fault) sender_.send(done->batch.images);
    batch = std::move(done->batch);
    sender_.take(batch.images);
    if (!workers_.empty()) add_job();
    if (auto* ready = next_if_made()) sender_.send(ready->batch.images);
    if (done->fault) std::rethrow_exception(done->fault);
    return true;
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wanted_.notify_all();
    workers_.clear();  // joins
  }

  /// Allocates the next batch and passes it to the workers. Only the caller's thread may change the queue.
  bool add_job() {
    if (next_batch_ >= batches_per_epoch()) return false;
    const int64_t begin = next_batch_++ * options_.batch;
    const int64_t global = std::min(options_.batch, dataset_.size() - begin);
    const auto [channels, height, width] = dataset_.image_shape();
    auto job = std::make_unique<Job>();
    job->epoch = epoch_;
    job->runs = runs_of(options_, begin, global);
    job->count = count_of(job->runs);
    const auto room = [&](at::IntArrayRef sizes, at::ScalarType type) {
      return at::empty(sizes, at::TensorOptions(type).pinned_memory(options_.device.is_cuda()));
    };
    job->batch = {room({job->count, channels, height, width}, at::kFloat), room({job->count}, at::kLong), global,
                  epoch_ * samples_per_epoch() + job->runs[0].first};
    job->images = job->batch.images.mutable_data_ptr<float>();
    job->labels = job->batch.labels.mutable_data_ptr<int64_t>();
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    wanted_.notify_all();
    return true;
  }

  /// The next batch, if it has been made without a fault.
  Job* next_if_made() {
    const std::lock_guard lock(mutex_);
    auto* job = jobs_.empty() ? nullptr : jobs_.front().get();
    return job != nullptr && job->finished == job->count && !job->fault && !workers_.empty() ? job : nullptr;
  }

  std::unique_ptr<Job> take_front() {
    const std::lock_guard lock(mutex_);
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }

  /// Drops all queued jobs: keeps threads from claiming more samples, and waits for those in progress.
  void drop_jobs() {
    std::unique_lock lock(mutex_);
    for (auto& job : jobs_) job->count = job->claimed;
    done_.wait(lock,
               [&] { return std::ranges::all_of(jobs_, [](const auto& job) { return job->finished == job->count; }); });
    jobs_.clear();
  }

  void fill(Job& job) {
    for (int64_t i = 0; i < job.count; ++i) make(own_maker_, job, i);
  }

  void make(Maker& maker, Job& job, int64_t i) {
    try {
      maker.make(job, order_, i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (i < job.fault_at) {
        job.fault_at = i;
        job.fault = std::current_exception();
      }
    }
  }

  Job* unclaimed() {
    for (auto& job : jobs_) {
      if (job->claimed < job->count) return job.get();
    }
    return nullptr;
  }

  void work() {
    Maker maker(dataset_, options_);
    std::unique_lock lock(mutex_);
    while (true) {
      Job* job = nullptr;
      wanted_.wait(lock, [&] { return stop_ || (job = unclaimed()) != nullptr; });
      if (stop_) return;
      const int64_t begin = job->claimed, end = std::min(begin + kSamplesAtOnce, job->count);
      job->claimed = end;
      lock.unlock();
      for (int64_t i = begin; i < end; ++i) make(maker, *job, i);
      lock.lock();
      job->finished += end - begin;
      if (job->finished == job->count) done_.notify_all();
    }
  }

  const Dataset& dataset_;
  const LoaderOptions options_;
  Permutation order_;  // changes only while there is no job
  Maker own_maker_;
  int64_t epoch_ = -1, next_batch_ = 0;
  DeviceSender sender_{options_.device};

  std::mutex mutex_;
  std::condition_variable wanted_, done_;
  bool stop_ = false;
  std::deque<std::unique_ptr<Job>> jobs_;
  std::vector<std::jthread> workers_;  // last member: destroyed before what the threads use
};

Loader::Loader(const Dataset& dataset, LoaderOptions options) {
  check(dataset, options);
  impl_ = std::make_unique<Impl>(dataset, std::move(options));
}

Loader::~Loader() = default;
int64_t Loader::batches_per_epoch() const { return impl_->batches_per_epoch(); }
const LoaderOptions& Loader::options() const { return impl_->options(); }
void Loader::start(int64_t epoch, int64_t first_batch) { impl_->start(epoch, first_batch); }
bool Loader::next(Batch& batch) { return impl_->next(batch); }

LoaderOptions test_options(LoaderOptions options) {
  const auto normalization = options.augment.normalization;
  options.augment = no_augmentation();
  options.augment.normalization = normalization;
  options.shuffle = options.drop_last = false;
  return options;
}

int64_t samples_of(const LoaderOptions& options, int64_t batch) { return count_of(runs_of(options, 0, batch)); }

std::vector<int64_t> samples_of_ranks(LoaderOptions options, int64_t batch) {
  std::vector<int64_t> samples;
  for (options.rank = 0; options.rank < options.size + options.idle; ++options.rank) {
    samples.push_back(samples_of(options, batch));
  }
  return samples;
}

int64_t loader_memory(const LoaderOptions& options, const std::array<int64_t, 3>& image_shape, int64_t batches) {
  const auto [channels, height, width] = image_shape;
  const int64_t samples = samples_of(options, options.batch);
  const int64_t image = channels * height * width * int64_t{sizeof(float)}, label = int64_t{sizeof(int64_t)};
  const int64_t ahead = std::min<int64_t>(options.prefetch, batches - 1);
  if (!options.device.is_cpu()) return (std::min<int64_t>(ahead, 1) + 1) * samples * image;
  return (ahead + 1) * samples * (image + label);
}

}  // namespace tandem::data
