#pragma once
#include <functional>
#include <vector>

#include "tandem/parallel/nested.h"
#include "tandem/parallel/replica_threads.h"

namespace tandem::parallel {

/// What a replica computes: called on its thread, with its number and its part of the input.
using ReplicaForward = std::function<Nested(int replica, const Nested& part)>;

/// Runs forward(i, parts[i]) for each part, each on the thread of its replica, and returns what they give, in order.
///
///   forward    parts ─┬─▶ thread 0: forward(0) ─┬─▶ values       one node of the caller's graph stands for all
///                     └─▶ thread 1: forward(1) ─┘
///   backward   ◀─┬─ thread 0: backward(0) ◀─┬─ gradients of the values
///                └─ thread 1: backward(1) ◀─┘                    weights: term 0 + term 1 + ...
///
/// libtorch's backward on a CPU runs on the thread that calls it. So each replica has a graph of its own, and backward
/// runs each on its thread. The gradients of weights are summed in the order of the replicas: the same bits in each
/// run, whichever thread is first. What a replica saves for backward is freed while its own backward runs.
///
/// `weights`: of each replica, which must list every leaf that requires a gradient and that `forward` uses; the same
/// tensors for all of them, or in their places tensors that share memory (replicate(), data_parallel.h). An inner list
/// is enough for all replicas. The gradient goes to those of replica 0; their hooks run once, with the sum.
///
/// CPU only. In forward and backward the replicas have the caller's context, phase, gradient mode and autocast
/// settings; an exception of a replica comes with its number. The graph has no second derivatives: backward with
/// create_graph throws c10::NotImplementedError. `threads` must outlive the graph. A recompute() around the call keeps
/// what the replicas keep: put it into `forward`.
std::vector<Nested> parallel_apply(const ReplicaForward& forward, const std::vector<Nested>& parts,
                                   const std::vector<std::vector<Tensor>>& weights, ReplicaThreads& threads);

}  // namespace tandem::parallel
